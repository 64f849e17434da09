//! Classes of a whole sequence, and labels of each position.

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::{positive, probability, refuse, size};
use crate::question::question_lengths;
use crate::{
    BlockConfig, ConfigError, FeedForward, FeedForwardConfig, Initializer, Linear, ModelConfig,
    NormConfig, NormPlacement, Source, Sublayer,
};

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
    /// What the states go through before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<LabelsLayer>,
    /// The token that ends a question: the scores of what stands up to it are lowered, but for the first position's, which means
    /// that there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_end: Option<u32>,
}

/// A feed-forward layer with its residual connection and a norm after it, before the labels. Zaheer et al. 2020.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelsLayer {
    /// The layer.
    pub feed_forward: FeedForwardConfig,
    /// After the sum.
    pub norm: NormConfig,
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
        if let Some(layer) = &self.layer {
            layer.feed_forward.validate("labels.layer.feed_forward")?;
            positive("labels.layer.norm.epsilon", layer.norm.epsilon())?;
        }
        if self.question_end.is_some() && self.about != LabelsUse::Answers {
            return refuse(
                "labels.question_end",
                "labels of tokens have no question; leave it out, or say that they are about answers",
            );
        }
        Ok(())
    }

    /// Builds what the states go through before the labels of `model`.
    pub(crate) fn build_layer(
        &self,
        model: &ModelConfig,
        initial: &mut Initializer,
    ) -> Option<Sublayer<FeedForward>> {
        let layer = self.layer.as_ref()?;
        let (width, deviation) = (model.states_width(), model.initial_deviation);
        let body = FeedForward::new(&layer.feed_forward, width, deviation, deviation, initial);
        let block = BlockConfig {
            norm: layer.norm.clone(),
            placement: NormPlacement::After,
            ..model.blocks.first()?.clone()
        };
        Some(Sublayer::new(body, &block, width, initial))
    }

    /// Scores `[batch, length, labels]` without those of answers inside the question.
    pub(crate) fn after_question(&self, scores: Tensor<3>, source: &Source) -> Tensor<3> {
        let (Some(end), Source::Ids(ids)) = (self.question_end, source) else {
            return scores;
        };
        let [batch, length, _] = scores.dims();
        let ends = question_lengths(ids, end).into_iter();
        let lowered = ends.flat_map(|end| {
            (0..length).map(move |at| match (1..end).contains(&at) {
                true => QUESTION_SCORE,
                false => 0.0,
            })
        });
        let lowered = TensorData::new(lowered.collect::<Vec<f32>>(), [batch, length, 1]);
        scores.clone() + Tensor::<3>::from_data(lowered, &scores.device())
    }
}

/// Added to the scores of answers inside a question. It is no stand-in for minus infinity: it is what checkpoints were trained
/// with, and what is told of such a place stays a number.
const QUESTION_SCORE: f32 = -1e6;

/// Scores of the classes of each sequence, all `[batch, classes]`.
#[derive(Clone, Debug)]
pub enum ClassScores {
    /// Of one head.
    Own(Tensor<2>),
    /// Of two, one of which learned from a teacher.
    WithTeacher {
        /// Of the pooled vector.
        own: Tensor<2>,
        /// Of the token that learned from the teacher.
        teacher: Tensor<2>,
    },
}

impl ClassScores {
    /// The scores to go by: of two heads their mean.
    pub fn mean(self) -> Tensor<2> {
        match self {
            Self::Own(own) => own,
            Self::WithTeacher { own, teacher } => (own + teacher) / 2.0,
        }
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

    /// Scores of a pooled vector and, with a teacher, of the second of the states.
    pub fn forward(
        &self,
        pooled: Tensor<2>,
        states: Tensor<3>,
        randomness: Option<&mut Randomness>,
    ) -> ClassScores {
        let own = self.map.forward(dropout(pooled, self.dropout, randomness));
        let Some(teacher) = &self.teacher else {
            return ClassScores::Own(own);
        };
        let [batch, _, width] = states.dims();
        let second = states.narrow(1, 1, 1).reshape([batch, width]);
        ClassScores::WithTeacher {
            own,
            teacher: teacher.forward(second),
        }
    }
}
