//! The training loop.

use std::sync::atomic::{AtomicBool, Ordering};

use attentive_model::checkpoint::{self, SpecialTokens, replace_file};
use attentive_model::{LanguageModel, Purpose, Randomness};
use attentive_text::{held_out_windows, training_windows, unigram_entropy};
use burn::module::Module;
use burn::tensor::Device;

use crate::run_folder::MetricsFile;
use crate::{
    AdamW, Data, Event, Gradients, Listener, Metric, Outcome, Recipe, RunFolder, Start, State,
    TrainingError,
};

/// A run: a model on its way through a recipe.
pub struct Trainer {
    recipe: Recipe,
    folder: RunFolder,
    data: Data,
    device: Device,
    model: LanguageModel,
    optimizer: AdamW,
    state: State,
    metrics: MetricsFile,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why the loop ended.
    pub outcome: Outcome,
    /// Steps done.
    pub step: u64,
    /// The lowest held-out loss, and its step.
    pub best: Option<(f64, u64)>,
    /// The last held-out loss of this sitting; none if it made no evaluation.
    pub held_out_loss: Option<f64>,
    /// Entropy of the tokens taken one by one.
    pub unigram_entropy: f64,
}

impl Trainer {
    /// Starts a run in `folder`, or goes on where its last save left it.
    pub fn start(
        mut recipe: Recipe,
        folder: RunFolder,
        start: Start,
        device: &Device,
    ) -> Result<Self, TrainingError> {
        folder.check(start)?;
        let data = Data::prepare(&recipe, folder.tokenizer(start)?)?;
        let tokens = data.tokenizer.vocabulary();
        match recipe.model.vocabulary {
            0 => recipe.model.vocabulary = tokens,
            model if model < tokens => {
                return Err(TrainingError::SmallVocabulary {
                    model,
                    tokenizer: tokens,
                });
            }
            _ => {}
        }
        folder.prepare(&recipe, start)?;
        let device = device.clone().autodiff();
        let fresh = LanguageModel::new(&recipe.model, recipe.seed, &device)?;
        let state_path = folder.state_path();
        let (state, model, optimizer) = if state_path.exists() {
            State::load(&state_path, fresh, &recipe.optimizer)?
        } else {
            let state = State {
                step: 0,
                best: None,
                fingerprint: data.fingerprint,
            };
            (state, fresh, AdamW::new(&recipe.optimizer))
        };
        if state.fingerprint != data.fingerprint {
            return Err(TrainingError::OtherData {
                folder: folder.path().to_owned(),
            });
        }
        let metrics = folder.metrics_from(state.step)?;
        let trainer = Self {
            recipe,
            folder,
            data,
            device,
            model,
            optimizer,
            state,
            metrics,
        };
        trainer.save_folder(trainer.folder.path())?;
        trainer.save_folder(&trainer.folder.best())?;
        Ok(trainer)
    }

    /// The model as it is now, ready for use.
    pub fn model(&self) -> LanguageModel {
        self.model.valid()
    }

    /// The data of the run.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The recipe, with the vocabulary filled in.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Trains until all steps are done or `stop` is set, which ends the step under way and saves.
    pub fn run(
        &mut self,
        listeners: &mut [&mut dyn Listener],
        stop: &AtomicBool,
    ) -> Result<Summary, TrainingError> {
        let mut tell = |event: Event| listeners.iter_mut().for_each(|it| it.on(&event));
        let steps = self.recipe.training.steps;
        let tokens = &self.data.tokens;
        let unigram_entropy = unigram_entropy(&tokens.held_out, self.recipe.model.vocabulary);
        tell(Event::Started {
            step: self.state.step,
            steps,
            parameters: self.model.num_params(),
            training_tokens: tokens.training.len(),
            held_out_tokens: tokens.held_out.len(),
            unigram_entropy,
        });
        let mut held_out_loss = None;
        let mut outcome = Outcome::Finished;
        while self.state.step < steps {
            if stop.load(Ordering::Relaxed) {
                outcome = Outcome::Interrupted;
                break;
            }
            tell(self.step()?);
            let step = self.state.step;
            if step == steps || step.is_multiple_of(self.recipe.training.evaluate_every) {
                let event = self.evaluate()?;
                if let Event::Evaluated {
                    held_out_loss: loss,
                    ..
                } = event
                {
                    held_out_loss = Some(loss);
                }
                tell(event);
                self.save()?;
                tell(Event::Saved { step });
            }
        }
        let step = self.state.step;
        if outcome == Outcome::Interrupted {
            self.save()?;
            tell(Event::Saved { step });
        }
        tell(Event::Ended { step, outcome });
        Ok(Summary {
            outcome,
            step,
            best: self.state.best,
            held_out_loss,
            unigram_entropy,
        })
    }

    /// One update. All that it draws is a function of the seed and the step.
    fn step(&mut self) -> Result<Event, TrainingError> {
        let recipe = &self.recipe;
        let (step, passes) = (self.state.step, recipe.training.accumulation);
        let mut sum: Option<Gradients> = None;
        let mut loss = 0.0;
        for pass in 0..passes as u64 {
            let number = step * passes as u64 + pass;
            let windows = training_windows(
                &self.data.tokens.training,
                recipe.seed,
                number,
                recipe.training.batch,
                recipe.model.length,
            );
            let batch = recipe.objective.prepare(&windows, &self.device);
            let mut randomness = Randomness::new(Purpose::Dropout, recipe.seed, number);
            let value = recipe.objective.loss(&self.model, batch, &mut randomness);
            let gradients = Gradients::of(&value, &self.model);
            loss += f64::from(value.into_scalar::<f32>()) / passes as f64;
            sum = Some(match sum {
                Some(sum) => sum.plus(gradients),
                None => gradients,
            });
        }
        if !loss.is_finite() {
            return Err(TrainingError::Diverged { step });
        }
        let mut gradients = sum.expect("a step has at least one pass");
        if passes > 1 {
            gradients = gradients.scaled(1.0 / passes as f64);
        }
        let (gradients, gradient_norm) = gradients.clipped(recipe.optimizer.clip);
        let factor = recipe.schedule.factor(step, recipe.training.steps);
        let learning_rate = recipe.optimizer.learning_rate * factor;
        let tokens = passes * recipe.training.batch * recipe.model.length;
        self.model = self.optimizer.update(self.model.clone(), gradients, factor);
        self.state.step += 1;
        let step = self.state.step;
        self.metrics.add(&Metric::Step {
            step,
            loss,
            learning_rate,
            gradient_norm,
        })?;
        Ok(Event::Stepped {
            step,
            loss,
            learning_rate,
            gradient_norm,
            tokens,
        })
    }

    /// Judges the model by the held-out tokens, and keeps it if it is the best so far.
    fn evaluate(&mut self) -> Result<Event, TrainingError> {
        let held_out_loss = self.held_out_loss();
        let step = self.state.step;
        let best = self.state.best.is_none_or(|(loss, _)| held_out_loss < loss);
        if best {
            self.state.best = Some((held_out_loss, step));
            checkpoint::save_weights(&self.folder.best(), &self.model)?;
        }
        self.metrics.add(&Metric::Evaluation {
            step,
            held_out_loss,
        })?;
        Ok(Event::Evaluated {
            step,
            held_out_loss,
            best,
        })
    }

    /// The mean loss over the evaluation windows.
    pub fn held_out_loss(&self) -> f64 {
        let training = &self.recipe.training;
        let windows = held_out_windows(
            &self.data.tokens.held_out,
            training.evaluation_windows,
            self.recipe.model.length,
        );
        let model = self.model.valid();
        let device = self.device.clone().inner();
        let mut sum = 0.0;
        for chunk in windows.chunks(training.batch) {
            let batch = self.recipe.objective.prepare(chunk, &device);
            let loss = self.recipe.objective.held_out_loss(&model, batch);
            sum += loss * chunk.len() as f64;
        }
        sum / windows.len() as f64
    }

    /// Saves the model for use and the state for resuming. The state comes last: what it says is then on disk.
    fn save(&mut self) -> Result<(), TrainingError> {
        self.metrics.flush()?;
        checkpoint::save_weights(self.folder.path(), &self.model)?;
        let path = self.folder.state_path();
        self.state.save(&path, &self.model, &self.optimizer)?;
        Ok(())
    }

    /// Writes the files of a model folder that do not change while training.
    fn save_folder(&self, folder: &std::path::Path) -> Result<(), TrainingError> {
        let end = self.data.tokenizer.end_of_text();
        let special = SpecialTokens {
            beginning: end,
            end: end.into_iter().collect(),
        };
        checkpoint::save_config(folder, &self.recipe.model, &special)?;
        let path = folder.join("tokenizer.json");
        let text = self.data.tokenizer.to_json();
        replace_file(&path, text.as_bytes()).map_err(|source| TrainingError::Io { path, source })
    }
}
