//! Classifiers: of whole sequences, and of each token.

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::{positive, probability, refuse, size};
use crate::question::question_lengths;
use crate::{
    ConfigError, FeedForward, FeedForwardConfig, Initializer, InputData, Linear, ModelConfig,
    NormConfig, Sublayer,
};

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

/// Settings of a token classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenClassifierConfig {
    /// The number of labels.
    pub labels: usize,
    /// What the labels are for.
    #[serde(default = "of_tokens")]
    pub task: TokenTask,
    /// Dropout on the hidden states.
    #[serde(default)]
    pub dropout: f64,
    /// A layer before the classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<TokenClassifierLayer>,
    /// The token that ends a question: the logits of the question are masked, except those of the first position, which stand
    /// for "no answer".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_end: Option<u32>,
}

/// A feed-forward layer with a residual connection and a norm after it, before the classifier. Zaheer et al. 2020.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenClassifierLayer {
    /// The layer.
    pub feed_forward: FeedForwardConfig,
    /// The norm after the residual sum.
    pub norm: NormConfig,
}

/// What a token classifier is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenTask {
    /// Labels each token.
    Labels,
    /// Question answering: two labels, for the start and the end of the answer's span.
    Span,
}

fn yes() -> bool {
    true
}

fn of_tokens() -> TokenTask {
    TokenTask::Labels
}

impl SequenceClassifierConfig {
    /// Whether the settings are valid in `model`.
    pub(crate) fn validate(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        size("classes.classes", self.classes)?;
        probability("classes.dropout", self.dropout)?;
        if model.pooler.is_none() {
            return refuse(
                "classes",
                "a sequence classifier reads the pooled vector; set pooler too",
            );
        }
        let tokens = model.patches.map_or(0, |patches| patches.tokens);
        if self.distillation && tokens < 2 {
            return refuse(
                "classes.distillation",
                "there is no distillation token; use patches with 2 tokens",
            );
        }
        Ok(())
    }
}

impl TokenClassifierConfig {
    /// Whether the settings are valid.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        size("labels.labels", self.labels)?;
        probability("labels.dropout", self.dropout)?;
        if self.task == TokenTask::Span && self.labels != 2 {
            return refuse(
                "labels.labels",
                format!(
                    "{} is out of range; spans have 2, for start and end",
                    self.labels
                ),
            );
        }
        if let Some(layer) = &self.layer {
            layer.feed_forward.validate("labels.layer.feed_forward")?;
            positive("labels.layer.norm.epsilon", layer.norm.epsilon())?;
        }
        if self.question_end.is_some() && self.task != TokenTask::Span {
            return refuse(
                "labels.question_end",
                "only question answering has a question; leave it out, or set the task to \"span\"",
            );
        }
        Ok(())
    }

    /// Builds the layer before the classifier of `model`, with the dropout of the model's first block.
    pub(crate) fn build_layer(
        &self,
        model: &ModelConfig,
        initializer: &mut Initializer,
    ) -> Option<Sublayer<FeedForward>> {
        let layer = self.layer.as_ref()?;
        let (width, std) = (model.states_width(), model.init_std);
        let dropout = model.blocks.first()?.dropout;
        let body = FeedForward::new(&layer.feed_forward, width, std, std, initializer);
        let layer = Sublayer::post_norm(body, &layer.norm, width, dropout, initializer);
        Some(layer)
    }

    /// `logits` `[batch, length, labels]` with those of the question masked.
    pub(crate) fn mask_question(&self, logits: Tensor<3>, data: &InputData) -> Tensor<3> {
        let (Some(end), InputData::Ids(ids)) = (self.question_end, data) else {
            return logits;
        };
        let [batch, length, _] = logits.dims();
        let ends = question_lengths(ids, end).into_iter();
        let mask = ends.flat_map(|end| {
            (0..length).map(move |at| match (1..end).contains(&at) {
                true => QUESTION_MASK,
                false => 0.0,
            })
        });
        let mask = TensorData::new(mask.collect::<Vec<f32>>(), [batch, length, 1]);
        logits.clone() + Tensor::<3>::from_data(mask, &logits.device())
    }
}

/// Added to the logits of a question. Not minus infinity: checkpoints were trained with this value, and masked logits stay
/// finite.
const QUESTION_MASK: f32 = -1e6;

/// Logits over the classes of each sequence, all `[batch, classes]`.
#[derive(Clone, Debug)]
pub enum ClassLogits {
    /// Of a single classifier.
    Single(Tensor<2>),
    /// Of two, one of which was distilled from a teacher.
    Distilled {
        /// Of the pooled vector.
        class: Tensor<2>,
        /// Of the distillation token.
        distillation: Tensor<2>,
    },
}

impl ClassLogits {
    /// The logits to predict from: of two classifiers, the mean.
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
    map: Linear,
    /// The classifier of the distillation token.
    teacher: Option<Linear>,
    #[module(skip)]
    dropout: f64,
}

impl SequenceClassifier {
    /// Builds the head of `model`, which reads a pooled vector of width `pooled`.
    pub fn new(
        config: &SequenceClassifierConfig,
        model: &ModelConfig,
        pooled: usize,
        initializer: &mut Initializer,
    ) -> Self {
        let std = model.init_std;
        let (classes, bias) = (config.classes, config.bias);
        let map = Linear::new(pooled, classes, bias, std, initializer);
        let distillation = || Linear::new(model.states_width(), classes, bias, std, initializer);
        Self {
            map,
            teacher: config.distillation.then(distillation),
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
        let class = self.map.forward(dropout(pooled, self.dropout, randomness));
        let Some(teacher) = &self.teacher else {
            return ClassLogits::Single(class);
        };
        let [batch, _, width] = states.dims();
        let second = states.narrow(1, 1, 1).reshape([batch, width]);
        ClassLogits::Distilled {
            class,
            distillation: teacher.forward(second),
        }
    }
}
