//! The training loop.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use attentive_checkpoint::SpecialTokens;
use attentive_checkpoint::{self as checkpoint, replace_file};
use attentive_data::{held_out_windows, training_windows, unigram_entropy};
use attentive_model::{Model, Purpose, Randomness};
use burn::module::Module;
use burn::tensor::Device;

use crate::run_folder::MetricsFile;
use crate::save_schedule::SaveSchedule;
use crate::{
    AdamW, Event, Gradients, Listener, Metric, Outcome, Recipe, RunFolder, SavedState, Start,
    TrainingData, TrainingError, TrainingState,
};

/// A training run.
pub struct Trainer {
    recipe: Recipe,
    folder: RunFolder,
    data: TrainingData,
    device: Device,
    /// None only inside an update.
    model: Option<Model>,
    optimizer: AdamW,
    state: TrainingState,
    metrics: MetricsFile,
    /// Keeps other processes from training in the folder.
    _lock: File,
}

const HAS_MODEL: &str = "there is a model between steps";

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why the loop ended.
    pub outcome: Outcome,
    /// Steps done.
    pub step: u64,
    /// The lowest held-out loss, and its step.
    pub best: Option<(f64, u64)>,
    /// Steps of this session, without those before resuming.
    pub session_steps: u64,
    /// The last held-out loss, if there was an evaluation.
    pub held_out_loss: Option<f64>,
    /// Unigram entropy of the held-out tokens, in nats.
    pub unigram_entropy: f64,
}

impl Trainer {
    /// Starts a run in `folder`, or resumes its last checkpoint.
    pub fn start(
        mut recipe: Recipe,
        folder: RunFolder,
        start: Start,
        device: &Device,
    ) -> Result<Self, TrainingError> {
        folder.check(start)?;
        // An existing run is locked before it is read; a new folder is created only after all checks.
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
                let state = TrainingState {
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
                // Another process may have started a run since the first check.
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

    /// The current model, for inference.
    pub fn model(&self) -> Model {
        self.current().valid()
    }

    fn current(&self) -> &Model {
        self.model.as_ref().expect(HAS_MODEL)
    }

    /// The data of the run.
    pub fn data(&self) -> &TrainingData {
        &self.data
    }

    /// The recipe, with the tokenizer's vocabulary filled in.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Trains until all steps are done, or until `stop` is set; the current step is then completed and saved.
    pub fn run(
        &mut self,
        listeners: &mut [&mut dyn Listener],
        stop: &AtomicBool,
    ) -> Result<Summary, TrainingError> {
        let mut emit = |event: Event| listeners.iter_mut().for_each(|it| it.on(&event));
        let steps = self.recipe.training.steps;
        let tokens = &self.data.tokens;
        let unigram_entropy = unigram_entropy(&tokens.held_out, self.recipe.model.stack.vocabulary);
        emit(Event::Started {
            step: self.state.step,
            steps,
            parameters: self.current().num_params(),
            training_tokens: tokens.training.len(),
            held_out_tokens: tokens.held_out.len(),
            unigram_entropy,
        });
        let first_step = self.state.step;
        let mut held_out_loss = self.last_held_out_loss()?;
        let mut outcome = Outcome::Finished;
        // What cannot be written fails before the first step, and a run that diverges at once has something to resume.
        if self.state.step == 0 && !self.folder.state_path().exists() {
            self.save()?;
            emit(Event::Saved { step: 0 });
        }
        let mut saves = SaveSchedule::new(self.recipe.training.save_every);
        while self.state.step < steps {
            if stop.load(Ordering::Relaxed) {
                outcome = Outcome::Interrupted;
                break;
            }
            emit(self.step()?);
            let step = self.state.step;
            let evaluated =
                step == steps || step.is_multiple_of(self.recipe.training.evaluate_every);
            if evaluated {
                let (event, loss) = self.evaluate()?;
                held_out_loss = Some(loss);
                emit(event);
            }
            if evaluated || saves.is_due(step) {
                self.save()?;
                saves.saved();
                emit(Event::Saved { step });
            }
        }
        let step = self.state.step;
        if outcome == Outcome::Interrupted {
            self.save()?;
            emit(Event::Saved { step });
        }
        emit(Event::Ended { step, outcome });
        Ok(Summary {
            outcome,
            step,
            session_steps: step - first_step,
            best: self.state.best,
            held_out_loss,
            unigram_entropy,
        })
    }

    /// One optimizer step. Its random numbers are a function of the seed and the step.
    fn step(&mut self) -> Result<Event, TrainingError> {
        let step = self.state.step;
        self.model = self.model.take().map(|model| model.resample_features(step));
        let (gradients, loss) = self.accumulate();
        self.require_finite("loss", loss)?;
        let recipe = &self.recipe;
        let (gradients, gradient_norm) = gradients.clipped(recipe.optimizer.max_grad_norm);
        self.require_finite("gradient norm", gradient_norm)?;
        let factor = recipe.schedule.factor(step, recipe.training.steps);
        let learning_rate = recipe.optimizer.learning_rate * factor;
        let batch = recipe.training.gradient_accumulation_steps * recipe.training.batch_size;
        let tokens = batch * recipe.model.stack.length;
        // Moved, so that the weights have one owner and are updated in place.
        let model = self.model.take().expect(HAS_MODEL);
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

    /// The mean gradients and the mean loss of the step's micro-batches.
    fn accumulate(&self) -> (Gradients, f64) {
        let recipe = &self.recipe;
        let count = recipe.training.gradient_accumulation_steps as u64;
        let (mut sum, mut mean_loss) = (None, 0.0);
        for micro_batch in 0..count {
            let index = self.state.step * count + micro_batch;
            let windows = training_windows(
                &self.data.tokens.training,
                recipe.seed,
                index,
                recipe.training.batch_size,
                recipe.model.stack.length,
            );
            let batch = recipe.objective.prepare(&windows, &self.device);
            let mut randomness = Randomness::new(Purpose::Dropout, recipe.seed, index);
            let loss = recipe
                .objective
                .loss(self.current(), batch, &mut randomness);
            let gradients = Gradients::backward(&loss, self.current());
            mean_loss += f64::from(loss.into_scalar::<f32>()) / count as f64;
            sum = Some(match sum {
                Some(sum) => Gradients::plus(sum, gradients),
                None => gradients,
            });
        }
        let sum: Gradients = sum.expect("accumulation is at least one");
        match count {
            1 => (sum, mean_loss),
            _ => (sum.scaled(1.0 / count as f64), mean_loss),
        }
    }

    /// Evaluates the model on the held-out tokens, and saves it if it is the best so far.
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

    /// An error before a value that is not finite reaches the weights, the metrics or a checkpoint.
    fn require_finite(&self, quantity: &'static str, value: f64) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        Err(TrainingError::Diverged {
            quantity,
            step: self.state.step,
            saved: self.folder.state_path().exists(),
        })
    }

    /// The last held-out loss of earlier sessions.
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
            self.recipe.model.stack.length,
        );
        let model = self.current().valid();
        let device = self.device.clone().inner();
        let mut sum = 0.0;
        for chunk in windows.chunks(training.batch_size) {
            let batch = self.recipe.objective.prepare(chunk, &device);
            let loss = self.recipe.objective.held_out_loss(&model, batch);
            sum += loss * chunk.len() as f64;
        }
        sum / windows.len() as f64
    }

    /// Saves the model and the state for resuming. The state comes last, so that what it refers to is on disk.
    fn save(&mut self) -> Result<(), TrainingError> {
        self.metrics.flush()?;
        checkpoint::save_weights(self.folder.path(), self.current())?;
        let path = self.folder.state_path();
        self.state.save(&path, self.current(), &self.optimizer)?;
        Ok(())
    }

    /// Writes the files of a model folder that do not change during training.
    fn save_folder(&self, folder: &std::path::Path) -> Result<(), TrainingError> {
        let eos = self.data.tokenizer.end_of_text();
        let special = SpecialTokens {
            bos: eos,
            eos: eos.into_iter().collect(),
            ..SpecialTokens::default()
        };
        checkpoint::save_config(folder, &self.recipe.model, &special)?;
        let path = folder.join("tokenizer.json");
        let text = self.data.tokenizer.to_json()?;
        replace_file(&path, text.as_bytes()).map_err(|source| TrainingError::Io { path, source })
    }
}

/// The saved state of the run to resume, if `recipe` is compatible with it.
pub(crate) fn saved_state(
    folder: &RunFolder,
    recipe: &Recipe,
) -> Result<Option<SavedState>, TrainingError> {
    let Some(previous) = folder.recipe()? else {
        return Ok(None);
    };
    folder.check_unchanged(&previous, recipe)?;
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

/// The data, which must be the same as before for a resumed run.
pub(crate) fn prepare_data(
    recipe: &Recipe,
    folder: &RunFolder,
    saved: Option<&SavedState>,
) -> Result<TrainingData, TrainingError> {
    let corpus = recipe.data.corpus(recipe.seed)?;
    let Some(saved) = saved else {
        // Without a checkpoint, nothing depends on the tokenizer that the run may have.
        return Ok(TrainingData::prepare(recipe, &corpus, None)?);
    };
    // Checked before tokenizing: an unknown character in changed text would hide the reason.
    if saved.state.fingerprint != corpus.fingerprint() {
        return Err(TrainingError::OtherData {
            folder: folder.path().to_owned(),
        });
    }
    Ok(TrainingData::prepare(recipe, &corpus, folder.tokenizer()?)?)
}

/// Checks the recipe against the tokenizer, and fills in the vocabulary.
pub(crate) fn fit_to_tokenizer(
    recipe: &mut Recipe,
    data: &TrainingData,
) -> Result<(), TrainingError> {
    let tokens = data.tokenizer.vocabulary();
    let vocabulary = &mut recipe.model.stack.vocabulary;
    if *vocabulary == 0 {
        *vocabulary = tokens;
    }
    if *vocabulary < tokens {
        return Err(TrainingError::SmallVocabulary {
            model: *vocabulary,
            tokenizer: tokens,
        });
    }
    recipe.check_model()?;
    // A prompt with unknown characters is not an error: the sample then starts with the held-out text.
    let prompt = data.tokenizer.encode(&recipe.sample.prompt);
    match prompt.map(|ids| ids.len()) {
        Ok(tokens) if tokens > recipe.model.stack.length => Err(TrainingError::LongPrompt {
            tokens,
            length: recipe.model.stack.length,
        }),
        _ => Ok(()),
    }
}
