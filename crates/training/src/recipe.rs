//! A recipe: everything that decides what a training run does, as one typed tree.

use attentive_model::ModelConfig;
use attentive_text::TokenizerConfig;
use serde::{Deserialize, Serialize};

use crate::{AdamWConfig, DataConfig, ObjectiveConfig, RecipeError, ScheduleConfig};

/// Everything that decides what a training run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Where all randomness starts.
    #[serde(default)]
    pub seed: u64,
    /// What to train on.
    pub data: DataConfig,
    /// How text becomes ids.
    pub tokenizer: TokenizerConfig,
    /// What to predict.
    #[serde(default)]
    pub objective: ObjectiveConfig,
    /// How weights follow gradients.
    pub optimizer: AdamWConfig,
    /// How the learning rate changes.
    #[serde(default)]
    pub schedule: ScheduleConfig,
    /// How long, how much at once, how often judged.
    pub training: TrainingConfig,
    /// What to write when training is done.
    #[serde(default)]
    pub sample: SampleConfig,
    /// What to train.
    pub model: ModelConfig,
}

/// How long, how much at once, how often judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Updates of the weights.
    pub steps: u64,
    /// Sequences per pass.
    pub batch: usize,
    /// Passes per update, whose gradients are averaged.
    #[serde(default = "one")]
    pub accumulation: usize,
    /// Steps between two evaluations; each also saves.
    pub evaluate_every: u64,
    /// Held-out sequences per evaluation, spread evenly; always the same.
    #[serde(default = "default_windows")]
    pub evaluation_windows: usize,
}

/// What to write when training is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleConfig {
    /// How the sample starts; empty for a fresh text.
    pub prompt: String,
    /// How many tokens follow.
    pub tokens: usize,
}

impl Default for SampleConfig {
    fn default() -> Self {
        Self {
            prompt: String::new(),
            tokens: 120,
        }
    }
}

fn one() -> usize {
    1
}

fn default_windows() -> usize {
    200
}

impl Recipe {
    /// Whether every value is in its range. The model's are checked once its vocabulary is known.
    pub fn validate(&self) -> Result<(), RecipeError> {
        let training = &self.training;
        let optimizer = &self.optimizer;
        let ObjectiveConfig::Causal { label_smoothing } = self.objective;
        let held_out = self.data.held_out();
        let checks = [
            (
                "training.steps",
                training.steps as f64,
                training.steps >= 1,
                "1 or more",
            ),
            (
                "training.batch",
                training.batch as f64,
                training.batch >= 1,
                "1 or more",
            ),
            (
                "training.accumulation",
                training.accumulation as f64,
                training.accumulation >= 1,
                "1 or more",
            ),
            (
                "training.evaluate_every",
                training.evaluate_every as f64,
                training.evaluate_every >= 1,
                "1 or more",
            ),
            (
                "training.evaluation_windows",
                training.evaluation_windows as f64,
                training.evaluation_windows >= 1,
                "1 or more",
            ),
            (
                "optimizer.learning_rate",
                optimizer.learning_rate,
                optimizer.learning_rate > 0.0 && optimizer.learning_rate.is_finite(),
                "more than 0",
            ),
            (
                "optimizer.decay",
                optimizer.decay,
                optimizer.decay >= 0.0,
                "0 or more",
            ),
            (
                "optimizer.beta1",
                optimizer.beta1,
                fraction(optimizer.beta1),
                "0 or more and less than 1",
            ),
            (
                "optimizer.beta2",
                optimizer.beta2,
                fraction(optimizer.beta2),
                "0 or more and less than 1",
            ),
            (
                "optimizer.epsilon",
                optimizer.epsilon,
                optimizer.epsilon > 0.0,
                "more than 0",
            ),
            (
                "optimizer.clip",
                optimizer.clip,
                optimizer.clip > 0.0,
                "more than 0",
            ),
            (
                "schedule.floor",
                self.schedule.floor,
                (0.0..=1.0).contains(&self.schedule.floor),
                "from 0 to 1",
            ),
            (
                "objective.label_smoothing",
                label_smoothing,
                fraction(label_smoothing),
                "0 or more and less than 1",
            ),
            (
                "data.held_out",
                held_out,
                held_out > 0.0 && held_out < 1.0,
                "more than 0 and less than 1",
            ),
        ];
        for (key, value, fits, range) in checks {
            if !fits {
                return Err(RecipeError::OutOfRange {
                    key: key.to_owned(),
                    problem: format!("{value} is out of range; use {range}"),
                });
            }
        }
        self.validate_model()
    }

    /// Whether the model's settings can work, with a stand-in where the vocabulary is still to come.
    fn validate_model(&self) -> Result<(), RecipeError> {
        let model = ModelConfig {
            vocabulary: self.model.vocabulary.max(1),
            ..self.model.clone()
        };
        model.validate().map_err(|error| RecipeError::OutOfRange {
            key: format!("model.{}", error.field),
            problem: error.problem,
        })
    }
}

fn fraction(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}
