//! Classifiers of each token, and of the start and end of an answer's span.

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::block::Sublayer;
use crate::checks::{positive, probability, refuse, size};
use crate::feed_forward::{FeedForward, FeedForwardConfig};
use crate::setters;
use crate::{ConfigError, ForwardContext, Initializer, InputData, Linear, NormConfig, StackConfig};

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
    /// The token that ends a question. The logits of the question are masked, except those of the first position, which stand
    /// for "no answer"; where the model has token types and none are given, those of the text are 1.
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
    /// Dropout on the output of the feed-forward layer.
    #[serde(default)]
    pub dropout: f64,
}

impl TokenClassifierLayer {
    /// This feed-forward layer, with this norm after the residual sum.
    pub fn new(feed_forward: impl Into<FeedForwardConfig>, norm: NormConfig) -> Self {
        Self {
            feed_forward: feed_forward.into(),
            norm,
            dropout: 0.0,
        }
    }

    setters! {
        with_dropout(dropout: f64);
    }
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

fn of_tokens() -> TokenTask {
    TokenTask::Labels
}

impl TokenClassifierConfig {
    /// As many labels of each token.
    pub fn new(labels: usize) -> Self {
        Self {
            labels,
            task: of_tokens(),
            dropout: 0.0,
            layer: None,
            question_end: None,
        }
    }

    /// Question answering: start and end of the answer.
    pub fn span() -> Self {
        Self::new(2).with_task(TokenTask::Span)
    }

    setters! {
        with_task(task: TokenTask);
        with_dropout(dropout: f64);
        with_layer(layer: TokenClassifierLayer => Some);
        with_question_end(question_end: u32 => Some);
    }

    /// Whether the settings are valid.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        size("token_classifier.labels", self.labels)?;
        probability("token_classifier.dropout", self.dropout)?;
        if self.task == TokenTask::Span && self.labels != 2 {
            return refuse(
                "token_classifier.labels",
                format!(
                    "{} is out of range; spans have 2, for start and end",
                    self.labels
                ),
            );
        }
        if let Some(layer) = &self.layer {
            layer
                .feed_forward
                .validate("token_classifier.layer.feed_forward")?;
            positive("token_classifier.layer.norm.epsilon", layer.norm.epsilon())?;
            probability("token_classifier.layer.dropout", layer.dropout)?;
        }
        if self.question_end.is_some() && self.task != TokenTask::Span {
            return refuse(
                "token_classifier.question_end",
                "only question answering has a question; leave it out, or set the task to \"span\"",
            );
        }
        Ok(())
    }
}

/// Classifies each token.
#[derive(Module, Debug)]
pub struct TokenClassifier {
    layer: Option<Sublayer<FeedForward>>,
    projection: Linear,
    #[module(skip)]
    config: TokenClassifierConfig,
}

impl TokenClassifier {
    /// Builds the head of `stack`.
    pub fn new(
        config: &TokenClassifierConfig,
        stack: &StackConfig,
        initializer: &mut Initializer,
    ) -> Self {
        let (width, std) = (stack.states_width(), stack.init_std);
        let layer = config.layer.as_ref().map(|layer| {
            let body = FeedForward::new(&layer.feed_forward, width, std, std, initializer);
            Sublayer::post_norm(body, &layer.norm, width, layer.dropout, initializer)
        });
        Self {
            layer,
            projection: Linear::new(width, config.labels, true, std, initializer),
            config: config.clone(),
        }
    }

    /// Logits `[batch, length, labels]` of hidden states; `data` is the input of the model.
    pub fn forward(
        &self,
        states: Tensor<3>,
        data: &InputData,
        randomness: Option<&mut Randomness>,
    ) -> Tensor<3> {
        let mut pass = ForwardContext {
            randomness,
            ..ForwardContext::default()
        };
        let states = match &self.layer {
            Some(layer) => layer
                .forward(states.into(), &mut pass, |body, x, pass| {
                    body.forward(x, pass)
                })
                .materialize(),
            None => states,
        };
        let states = dropout(states, self.config.dropout, pass.randomness);
        let logits = self.projection.forward(states);
        match (self.config.question_end, data) {
            (Some(end), InputData::Ids(ids)) => mask_question(logits, ids, end),
            _ => logits,
        }
    }

    /// The token types of a question (0) and the text after it (1), if the config has a `question_end`.
    pub(crate) fn question_types(&self, ids: &Tensor<2, Int>) -> Option<Tensor<2, Int>> {
        let [batch, length] = ids.dims();
        let lengths = question_lengths(ids, self.config.question_end?).into_iter();
        let types = lengths.flat_map(|end| (0..length).map(move |at| i64::from(at >= end)));
        let types = TensorData::new(types.collect::<Vec<_>>(), [batch, length]);
        Some(Tensor::from_data(types, &ids.device()))
    }
}

/// Added to the logits of a question. Not minus infinity: checkpoints were trained with this value, and masked logits stay
/// finite.
const QUESTION_MASK: f32 = -1e6;

/// Logits `[batch, length, labels]` with those of the question masked.
fn mask_question(logits: Tensor<3>, ids: &Tensor<2, Int>, end: u32) -> Tensor<3> {
    let [batch, length, _] = logits.dims();
    let lengths = question_lengths(ids, end).into_iter();
    let mask = lengths.flat_map(|end| {
        (0..length).map(move |at| match (1..end).contains(&at) {
            true => QUESTION_MASK,
            false => 0.0,
        })
    });
    let mask = TensorData::new(mask.collect::<Vec<f32>>(), [batch, length, 1]);
    logits.clone() + Tensor::<3>::from_data(mask, &logits.device())
}

/// The number of tokens of the question in each row of `ids` `[batch, length]`: up to and including the first `end`, or 1
/// where there is none.
fn question_lengths(ids: &Tensor<2, Int>, end: u32) -> Vec<usize> {
    let [_, length] = ids.dims();
    let ids = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
    let row = |row: &[i64]| {
        let position = row.iter().position(|id| *id == i64::from(end));
        position.unwrap_or(0) + 1
    };
    ids.chunks(length.max(1)).map(row).collect()
}
