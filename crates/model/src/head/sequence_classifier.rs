//! Classifiers of whole sequences.

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::{probability, refuse, size};
use crate::setters;
use crate::{ConfigError, Initializer, Linear, ModelConfig, StackConfig};

/// Settings of a sequence classifier, which reads the pooled vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceClassifierConfig {
    /// The number of classes.
    pub classes: usize,
    /// Whether the projection has a bias.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Dropout on the pooled vector.
    #[serde(default)]
    pub dropout: f64,
    /// Whether a second classifier reads the distillation token at the second position, and the logits are the mean of both
    /// (Touvron et al. 2021).
    #[serde(default)]
    pub distillation: bool,
}

fn yes() -> bool {
    true
}

impl SequenceClassifierConfig {
    /// As many classes.
    pub fn new(classes: usize) -> Self {
        Self {
            classes,
            bias: yes(),
            dropout: 0.0,
            distillation: false,
        }
    }

    setters! {
        with_bias(bias: bool);
        with_dropout(dropout: f64);
        with_distillation(distillation: bool);
    }

    /// Whether the settings are valid in `model`.
    pub(crate) fn validate(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        size("sequence_classifier.classes", self.classes)?;
        probability("sequence_classifier.dropout", self.dropout)?;
        if model.pooler.is_none() {
            return refuse(
                "sequence_classifier",
                "a sequence classifier reads the pooled vector; set pooler too",
            );
        }
        let tokens = model.stack.patches.map_or(0, |patches| patches.tokens);
        if self.distillation && tokens < 2 {
            return refuse(
                "sequence_classifier.distillation",
                "there is no distillation token; use patches with 2 tokens",
            );
        }
        Ok(())
    }
}

/// Logits over the classes of each sequence, all `[batch, classes]`.
#[derive(Clone, Debug)]
pub enum ClassLogits {
    /// The logits of a single classifier.
    Single(Tensor<2>),
    /// The logits of two classifiers, one of which was distilled from a teacher.
    Distilled {
        /// From the pooled vector.
        class: Tensor<2>,
        /// From the distillation token.
        distillation: Tensor<2>,
    },
}

impl ClassLogits {
    /// The logits to predict from; with two classifiers, their mean.
    pub fn mean(self) -> Tensor<2> {
        match self {
            Self::Single(logits) => logits,
            Self::Distilled {
                class,
                distillation,
            } => (class + distillation) / 2.0,
        }
    }
}

/// Classifies whole sequences.
#[derive(Module, Debug)]
pub struct SequenceClassifier {
    projection: Linear,
    /// The classifier of the distillation token.
    distillation: Option<Linear>,
    #[module(skip)]
    dropout: f64,
}

impl SequenceClassifier {
    /// Builds the head of `stack`, which reads a pooled vector of width `pooled`.
    pub fn new(
        config: &SequenceClassifierConfig,
        stack: &StackConfig,
        pooled: usize,
        initializer: &mut Initializer,
    ) -> Self {
        let mut of_width = |width: usize| {
            Linear::new(
                width,
                config.classes,
                config.bias,
                stack.init_std,
                initializer,
            )
        };
        Self {
            projection: of_width(pooled),
            distillation: (config.distillation).then(|| of_width(stack.states_width())),
            dropout: config.dropout,
        }
    }

    /// Logits of the pooled vector and, with distillation, of the second hidden state.
    pub fn forward(
        &self,
        pooled: Tensor<2>,
        states: Tensor<3>,
        randomness: Option<&mut Randomness>,
    ) -> ClassLogits {
        let pooled = dropout(pooled, self.dropout, randomness);
        let class = self.projection.forward(pooled);
        let Some(distillation) = &self.distillation else {
            return ClassLogits::Single(class);
        };
        let [batch, _, width] = states.dims();
        let second = states.narrow(1, 1, 1).reshape([batch, width]);
        ClassLogits::Distilled {
            class,
            distillation: distillation.forward(second),
        }
    }
}
