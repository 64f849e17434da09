//! The training loop.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use attentive_model::checkpoint::{self, SpecialTokens, replace_file};
use attentive_model::{Model, Purpose, Randomness};
use attentive_text::{held_out_windows, training_windows, unigram_entropy};
use burn::module::Module;
use burn::tensor::Device;

use crate::run_folder::MetricsFile;
use crate::{
    AdamW, Data, Event, Gradients, Listener, Metric, Outcome, Recipe, RunFolder, SavedState, Start,
    State, TrainingError,
};

/// A run: a model on its way through a recipe.
pub struct Trainer {
    recipe: Recipe,
    folder: RunFolder,
    data: Data,
    device: Device,
    /// There is one, but inside an update.
    model: Option<Model>,
    optimizer: AdamW,
    state: State,
    metrics: MetricsFile,
    /// Held while the run lives, so that no second process trains in its folder.
    _lock: File,
}

const BETWEEN_STEPS: &str = "there is a model between steps";

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why the loop ended.
    pub outcome: Outcome,
    /// Steps done.
    pub step: u64,
    /// The lowest held-out loss, and its step.
    pub best: Option<(f64, u64)>,
    /// Steps done in this sitting.
    pub sitting: u64,
    /// The last held-out loss; none if there was no evaluation yet.
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
        // A run that is there is locked before it is read; a new folder is not made before all checks have passed.
        let lock = folder.holds_run().then(|| folder.lock()).transpose()?;
        let saved = match start {
            Start::Resume => saved_state(&folder, &recipe)?,
            Start::New | Start::Overwrite => None,
        };
        let data = prepare_data(&recipe, &folder, saved.as_ref())?;
        fit_to_tokenizer(&mut recipe, &data)?;
        let device = device.clone().autodiff();
        let fresh = Model::new(&recipe.model, recipe.seed, &device)?;
        let (state, model, optimizer) = match saved {
            Some(saved) => saved.restore(fresh, &recipe.optimizer)?,
            None => {
                let state = State {
                    step: 0,
                    best: None,
                    fingerprint: data.fingerprint,
                };
                (state, fresh, AdamW::new(&recipe.optimizer))
            }
        };
        let lock = match lock {
            Some(lock) => lock,
            None => {
                let lock = folder.lock()?;
                // Another process may have begun a run since the first look.
                folder.check(Start::New)?;
                lock
            }
        };
        folder.prepare(&recipe, start)?;
        let metrics = folder.metrics_from(state.step)?;
        let trainer = Self {
            recipe,
            folder,
            data,
            device,
            model: Some(model),
            optimizer,
            state,
            metrics,
            _lock: lock,
        };
        trainer.save_folder(trainer.folder.path())?;
        trainer.save_folder(&trainer.folder.best())?;
        Ok(trainer)
    }

    /// The model as it is now, ready for use.
    pub fn model(&self) -> Model {
        self.current().valid()
    }

    fn current(&self) -> &Model {
        self.model.as_ref().expect(BETWEEN_STEPS)
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
            parameters: self.current().num_params(),
            training_tokens: tokens.training.len(),
            held_out_tokens: tokens.held_out.len(),
            unigram_entropy,
        });
        let before = self.state.step;
        let mut held_out_loss = self.last_held_out_loss()?;
        let mut outcome = Outcome::Finished;
        while self.state.step < steps {
            if stop.load(Ordering::Relaxed) {
                outcome = Outcome::Interrupted;
                break;
            }
            tell(self.step()?);
            let step = self.state.step;
            if step == steps || step.is_multiple_of(self.recipe.training.evaluate_every) {
                let (event, loss) = self.evaluate()?;
                held_out_loss = Some(loss);
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
            sitting: step - before,
            best: self.state.best,
            held_out_loss,
            unigram_entropy,
        })
    }

    /// One update. All that it draws is a function of the seed and the step.
    fn step(&mut self) -> Result<Event, TrainingError> {
        let recipe = &self.recipe;
        let (step, passes) = (self.state.step, recipe.training.accumulation);
        self.model = self.model.take().map(|model| model.redraw(step));
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
            let value = recipe
                .objective
                .loss(self.current(), batch, &mut randomness);
            let gradients = Gradients::of(&value, self.current());
            loss += f64::from(value.into_scalar::<f32>()) / passes as f64;
            sum = Some(match sum {
                Some(sum) => sum.plus(gradients),
                None => gradients,
            });
        }
        self.require_finite("loss", loss)?;
        let mut gradients = sum.expect("a step has at least one pass");
        if passes > 1 {
            gradients = gradients.scaled(1.0 / passes as f64);
        }
        let (gradients, gradient_norm) = gradients.clipped(recipe.optimizer.clip);
        self.require_finite("gradient norm", gradient_norm)?;
        let factor = recipe.schedule.factor(step, recipe.training.steps);
        let learning_rate = recipe.optimizer.learning_rate * factor;
        let tokens = passes * recipe.training.batch * recipe.model.length;
        // Taken out, so that nobody else holds the weights and they are updated in place.
        let model = self.model.take().expect(BETWEEN_STEPS);
        self.model = Some(self.optimizer.update(model, gradients, factor));
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
    fn evaluate(&mut self) -> Result<(Event, f64), TrainingError> {
        let held_out_loss = self.held_out_loss();
        self.require_finite("held-out loss", held_out_loss)?;
        let step = self.state.step;
        let best = self.state.best.is_none_or(|(loss, _)| held_out_loss < loss);
        if best {
            self.state.best = Some((held_out_loss, step));
            checkpoint::save_weights(&self.folder.best(), self.current())?;
        }
        self.metrics.add(&Metric::Evaluation {
            step,
            held_out_loss,
        })?;
        let event = Event::Evaluated {
            step,
            held_out_loss,
            best,
        };
        Ok((event, held_out_loss))
    }

    /// Ends the run before a number that is none reaches the weights, the metrics or a save.
    fn require_finite(&self, number: &'static str, value: f64) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        Err(TrainingError::Diverged {
            number,
            step: self.state.step,
            saved: self.folder.state_path().exists(),
        })
    }

    /// The last held-out loss of earlier sittings.
    fn last_held_out_loss(&self) -> Result<Option<f64>, TrainingError> {
        let metrics = self.folder.metrics()?;
        Ok(metrics.iter().rev().find_map(|metric| match metric {
            Metric::Evaluation { held_out_loss, .. } => Some(*held_out_loss),
            Metric::Step { .. } => None,
        }))
    }

    /// The mean loss over the evaluation windows.
    pub fn held_out_loss(&self) -> f64 {
        let training = &self.recipe.training;
        let windows = held_out_windows(
            &self.data.tokens.held_out,
            training.evaluation_windows,
            self.recipe.model.length,
        );
        let model = self.current().valid();
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
        checkpoint::save_weights(self.folder.path(), self.current())?;
        let path = self.folder.state_path();
        self.state.save(&path, self.current(), &self.optimizer)?;
        Ok(())
    }

    /// Writes the files of a model folder that do not change while training.
    fn save_folder(&self, folder: &std::path::Path) -> Result<(), TrainingError> {
        let end = self.data.tokenizer.end_of_text();
        let special = SpecialTokens {
            beginning: end,
            end: end.into_iter().collect(),
            ..SpecialTokens::default()
        };
        checkpoint::save_config(folder, &self.recipe.model, &special)?;
        let path = folder.join("tokenizer.json");
        let text = self.data.tokenizer.to_json()?;
        replace_file(&path, text.as_bytes()).map_err(|source| TrainingError::Io { path, source })
    }
}

/// What is saved of the run to be resumed, if `recipe` can go on with it.
fn saved_state(folder: &RunFolder, recipe: &Recipe) -> Result<Option<SavedState>, TrainingError> {
    let Some(held) = folder.recipe()? else {
        return Ok(None);
    };
    folder.check_unchanged(&held, recipe)?;
    let saved = folder.saved_state()?;
    match &saved {
        Some(SavedState { state, .. }) if state.step > recipe.training.steps => {
            Err(TrainingError::FewerSteps {
                steps: recipe.training.steps,
                done: state.step,
            })
        }
        _ => Ok(saved),
    }
}

/// The data, which must be what was learned from so far.
fn prepare_data(
    recipe: &Recipe,
    folder: &RunFolder,
    saved: Option<&SavedState>,
) -> Result<Data, TrainingError> {
    let corpus = recipe.data.corpus(recipe.seed)?;
    let Some(saved) = saved else {
        // Whatever tokenizer a run without a save has, nothing was learned with it.
        return Ok(Data::prepare(recipe, &corpus, None)?);
    };
    // Before the text is encoded: a tokenizer of characters would stumble over new ones and hide the reason.
    if saved.state.fingerprint != corpus.fingerprint() {
        return Err(TrainingError::OtherData {
            folder: folder.path().to_owned(),
        });
    }
    Ok(Data::prepare(recipe, &corpus, folder.tokenizer()?)?)
}

/// Checks what can only be checked with the tokenizer at hand, and fills in the vocabulary.
fn fit_to_tokenizer(recipe: &mut Recipe, data: &Data) -> Result<(), TrainingError> {
    let tokens = data.tokenizer.vocabulary();
    let vocabulary = &mut recipe.model.vocabulary;
    if *vocabulary == 0 {
        *vocabulary = tokens;
    }
    if *vocabulary < tokens {
        return Err(TrainingError::SmallVocabulary {
            model: *vocabulary,
            tokenizer: tokens,
        });
    }
    recipe.check_size()?;
    // A prompt with characters that the text lacks is no error: the sample then starts otherwise.
    let prompt = data.tokenizer.encode(&recipe.sample.prompt);
    match prompt.map(|ids| ids.len()) {
        Ok(tokens) if tokens > recipe.model.length => Err(TrainingError::LongPrompt {
            tokens,
            length: recipe.model.length,
        }),
        _ => Ok(()),
    }
}
