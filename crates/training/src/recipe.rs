//! A recipe: the whole configuration of a training run.

use attentive_model::{Model, ModelConfig, Parameter, parameters};
use attentive_text::TokenizerConfig;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use crate::{AdamWConfig, DataConfig, ObjectiveConfig, RecipeError, SaveEvery, ScheduleConfig};

/// The whole configuration of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The seed of all random numbers.
    #[serde(default)]
    pub seed: u64,
    /// The training data.
    pub data: DataConfig,
    /// The tokenizer.
    pub tokenizer: TokenizerConfig,
    /// The objective.
    #[serde(default)]
    pub objective: ObjectiveConfig,
    /// AdamW.
    pub optimizer: AdamWConfig,
    /// The learning rate schedule.
    #[serde(default)]
    pub schedule: ScheduleConfig,
    /// Steps, batch size and evaluation.
    pub training: TrainingConfig,
    /// The sample at the end of training.
    #[serde(default)]
    pub sample: SampleConfig,
    /// The model.
    pub model: ModelConfig,
}

/// Steps, batch size and evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Number of optimizer steps.
    pub steps: u64,
    /// Batch size.
    pub batch_size: usize,
    /// Gradient accumulation: batches per step, whose gradients are averaged.
    #[serde(default = "one")]
    pub gradient_accumulation_steps: usize,
    /// Steps between evaluations; each also saves.
    pub evaluate_every: u64,
    /// Steps or time between further saves, so that a run that is killed loses no more.
    #[serde(default)]
    pub save_every: SaveEvery,
    /// Sequences per evaluation, evenly spaced in the held-out tokens and always the same.
    #[serde(default = "default_windows")]
    pub evaluation_windows: usize,
}

/// The sample at the end of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleConfig {
    /// The prompt; empty to start a new text.
    pub prompt: String,
    /// Number of new tokens.
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
        self.validate_counts()?;
        self.validate_numbers()?;
        let save_every = self.training.save_every;
        if !save_every.is_valid() {
            return out_of_range(
                "training.save_every",
                save_every,
                "1 to 1000000000000 steps, or whole seconds",
            );
        }
        self.check_model()
    }

    #[rustfmt::skip] // Keeps the columns aligned.
    fn validate_counts(&self) -> Result<(), RecipeError> {
        let training = &self.training;
        let stories = match self.data {
            DataConfig::Stories { count, .. } => count,
            DataConfig::Files { .. } => 1,
        };
        let vocabulary = match self.tokenizer {
            TokenizerConfig::Bpe { vocabulary } => vocabulary,
            TokenizerConfig::Characters {} | TokenizerConfig::Bytes {} => 257,
        };
        // The upper bounds are far above any use: they catch typos that would make a run endless or too large.
        let counts = [
            ("training.steps",                       training.steps,                              1..=1_000_000_000_000),
            ("training.batch_size",                  training.batch_size as u64,                  1..=65_536),
            ("training.gradient_accumulation_steps", training.gradient_accumulation_steps as u64, 1..=65_536),
            ("training.evaluate_every",              training.evaluate_every,                     1..=1_000_000_000_000),
            ("training.evaluation_windows",          training.evaluation_windows as u64,          1..=1_000_000),
            ("schedule.warmup_steps",                self.schedule.warmup_steps,                  0..=1_000_000_000_000),
            ("sample.tokens",                        self.sample.tokens as u64,                   0..=1_000_000),
            ("data.count",                           stories as u64,                              1..=10_000_000),
            ("tokenizer.vocabulary",                 vocabulary as u64,                           257..=1_000_000),
        ];
        match counts.into_iter().find(|(_, value, range)| !range.contains(value)) {
            Some((key, value, range)) => {
                out_of_range(key, value, &format!("{} to {}", range.start(), range.end()))
            }
            None => Ok(()),
        }
    }

    #[rustfmt::skip] // Keeps the columns aligned.
    fn validate_numbers(&self) -> Result<(), RecipeError> {
        const BELOW_ONE: &str = "0 or more and less than 1";
        let AdamWConfig { learning_rate, weight_decay, beta1, beta2, epsilon, max_grad_norm } = self.optimizer;
        let ObjectiveConfig::Causal { label_smoothing } = self.objective;
        let (min_lr_ratio, held_out) = (self.schedule.min_lr_ratio, self.data.held_out());
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let numbers = [
            ("optimizer.learning_rate",   learning_rate,   positive(learning_rate),               "more than 0"),
            ("optimizer.weight_decay",    weight_decay,    weight_decay >= 0.0 && weight_decay.is_finite(), "0 or more"),
            ("optimizer.beta1",           beta1,           (0.0..1.0).contains(&beta1),           BELOW_ONE),
            ("optimizer.beta2",           beta2,           (0.0..1.0).contains(&beta2),           BELOW_ONE),
            ("optimizer.epsilon",         epsilon,         positive(epsilon),                     "more than 0"),
            // Infinity disables clipping.
            ("optimizer.max_grad_norm",   max_grad_norm,   max_grad_norm > 0.0,                   "more than 0"),
            ("schedule.min_lr_ratio",     min_lr_ratio,    (0.0..=1.0).contains(&min_lr_ratio),   "0 to 1"),
            ("objective.label_smoothing", label_smoothing, (0.0..1.0).contains(&label_smoothing), BELOW_ONE),
            ("data.held_out",             held_out,        held_out > 0.0 && held_out < 1.0,      "more than 0 and less than 1"),
        ];
        match numbers.into_iter().find(|(_, _, fits, _)| !fits) {
            Some((key, value, _, range)) => out_of_range(key, value, range),
            None => Ok(()),
        }
    }

    /// Whether the model's settings are valid and its weights can fit into memory: a failed allocation would abort the program
    /// without an error. A vocabulary that is not known yet gets a placeholder.
    pub fn check_model(&self) -> Result<(), RecipeError> {
        let mut config = self.model.clone();
        config.stack.vocabulary = config.stack.vocabulary.max(1);
        // Weights are initialized lazily, so this allocates nothing.
        let model =
            Model::new(&config, 0, &Device::flex()).map_err(|error| RecipeError::OutOfRange {
                key: format!("model.{}", error.field),
                problem: error.problem,
            })?;
        let values = |parameter: &Parameter| -> u128 {
            parameter.shape.iter().map(|size| *size as u128).product()
        };
        let bytes = 4 * parameters(&model).iter().map(values).sum::<u128>();
        if bytes <= MAX_WEIGHT_BYTES {
            return Ok(());
        }
        Err(RecipeError::OutOfRange {
            key: "model".to_owned(),
            problem: format!(
                "its weights would take {} GiB, and the limit is {}; make it narrower or shallower",
                bytes >> 30,
                MAX_WEIGHT_BYTES >> 30
            ),
        })
    }
}

/// One tebibyte.
const MAX_WEIGHT_BYTES: u128 = 1 << 40;

fn out_of_range(key: &str, value: impl std::fmt::Display, range: &str) -> Result<(), RecipeError> {
    Err(RecipeError::OutOfRange {
        key: key.to_owned(),
        problem: format!("{value} is out of range; use {range}"),
    })
}
