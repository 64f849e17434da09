//! Classes of a whole sequence, and labels of each position.

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::{probability, refuse, size};
use crate::{ConfigError, Initializer, Linear, ModelConfig};

/// Settings of the classes of a sequence, which are read from the pooled vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassesConfig {
    /// How many classes there are.
    pub classes: usize,
    /// Whether the map has a bias.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Dropout on the pooled vector.
    #[serde(default)]
    pub dropout: f64,
    /// Whether a second map reads the second position, and the scores are the mean of both (Touvron et al. 2021).
    #[serde(default)]
    pub teacher: bool,
}

/// Settings of the labels of each position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelsConfig {
    /// How many labels there are.
    pub labels: usize,
    /// What they say.
    #[serde(default = "of_tokens")]
    pub about: LabelsUse,
    /// Dropout on the states.
    #[serde(default)]
    pub dropout: f64,
}

/// What the labels of positions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelsUse {
    /// What each token is.
    Tokens,
    /// Two scores: that an answer begins here, and that it ends here.
    Answers,
}

fn yes() -> bool {
    true
}

fn of_tokens() -> LabelsUse {
    LabelsUse::Tokens
}

impl ClassesConfig {
    /// Whether the settings can work in `model`.
    pub(crate) fn validate(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        size("classes.classes", self.classes)?;
        probability("classes.dropout", self.dropout)?;
        if model.pooler.is_none() {
            return refuse(
                "classes",
                "classes are read from the pooled vector; say pooler too",
            );
        }
        let tokens = model.patches.map_or(0, |patches| patches.tokens);
        if self.teacher && tokens < 2 {
            return refuse(
                "classes.teacher",
                "there is no second position to read; use patches with 2 tokens",
            );
        }
        Ok(())
    }
}

impl LabelsConfig {
    /// Whether the settings can work.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        size("labels.labels", self.labels)?;
        probability("labels.dropout", self.dropout)?;
        if self.about == LabelsUse::Answers && self.labels != 2 {
            return refuse(
                "labels.labels",
                format!(
                    "{} is out of range; answers have 2, for beginnings and ends",
                    self.labels
                ),
            );
        }
        Ok(())
    }
}

/// Scores the classes of a sequence.
#[derive(Module, Debug)]
pub struct Classes {
    map: Linear,
    teacher: Option<Linear>,
    #[module(skip)]
    dropout: f64,
}

impl Classes {
    /// Builds the head of `model`, which reads a pooled vector of this width.
    pub fn new(
        config: &ClassesConfig,
        model: &ModelConfig,
        pooled: usize,
        initial: &mut Initializer,
    ) -> Self {
        let deviation = model.initial_deviation;
        let (classes, bias) = (config.classes, config.bias);
        let map = Linear::new(pooled, classes, bias, deviation, initial);
        let teacher = || Linear::new(model.states_width(), classes, bias, deviation, initial);
        Self {
            map,
            teacher: config.teacher.then(teacher),
            dropout: config.dropout,
        }
    }

    /// Scores `[batch, classes]` of a pooled vector and, with a teacher, of the second of the states.
    pub fn forward(
        &self,
        pooled: Tensor<2>,
        states: Tensor<3>,
        randomness: Option<&mut Randomness>,
    ) -> Tensor<2> {
        let scores = self.map.forward(dropout(pooled, self.dropout, randomness));
        let Some(teacher) = &self.teacher else {
            return scores;
        };
        let [batch, _, width] = states.dims();
        let second = states.narrow(1, 1, 1).reshape([batch, width]);
        (scores + teacher.forward(second)) / 2.0
    }
}
