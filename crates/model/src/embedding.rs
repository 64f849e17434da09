//! From ids to vectors: tables of tokens, positions and kinds of segments, summed, normalized and widened.

use attentive_tensor::embedding;
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::checks::{positive, refuse, size, within};
use crate::{ClustersConfig, ConfigError, Initializer, ModelConfig, NormConfig, PositionsConfig};

/// What becomes of tokens before the first block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingConfig {
    /// Width of the tables, where a map takes their sum to the model's width (Lan et al. 2020). Without it there is no map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// Tokens in clusters of several widths, in the place of one table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClustersConfig>,
    /// Whether the tokens' vectors are multiplied by √width; they are unless said where positions are sinusoidal, which
    /// would drown them otherwise (Vaswani et al. 2017), and are not elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<bool>,
    /// How many kinds of segments a token can belong to; each has a vector, which is added (Devlin et al. 2019). Zero:
    /// there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub types: usize,
    /// The token that ends a question: where a pass does not say, what follows the first of it is of the second kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_end: Option<u32>,
    /// On the sum of all vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormConfig>,
    /// Whether the table of tokens is the one of the decoder that reads this encoder.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared: bool,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Far above all use; the table stays small.
const MOST_TYPES: usize = 1 << 20;

impl EmbeddingConfig {
    /// Whether the settings can work in `model`.
    pub(crate) fn validate(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        if let Some(width) = self.width {
            size("embedding.width", width)?;
        }
        if self.types > 0 {
            within("embedding.types", self.types, MOST_TYPES)?;
        }
        if self.question_end.is_some() && self.types < 2 {
            return refuse(
                "embedding.question_end",
                "there is no second kind of segments; say types too, 2 or more, or leave it out",
            );
        }
        if let Some(norm) = &self.norm {
            positive("embedding.norm.epsilon", norm.epsilon())?;
        }
        if let Some(clusters) = &self.clusters {
            if self.width.is_some() || self.shared {
                return refuse(
                    "embedding.clusters",
                    "clusters have widths and maps of their own, and are not shared; leave out width and shared",
                );
            }
            clusters.validate("embedding.clusters", model)?;
        }
        if model.patches.is_none() {
            return Ok(());
        }
        let refused = [
            ("width", self.width.is_some()),
            ("clusters", self.clusters.is_some()),
            ("scaled", self.scaled.is_some()),
            ("types", self.types > 0),
            ("shared", self.shared),
        ];
        match refused.into_iter().find(|(_, said)| *said) {
            Some((field, _)) => refuse(
                &format!("embedding.{field}"),
                "it is about tokens, and this model reads pictures; leave it out",
            ),
            None => Ok(()),
        }
    }

    /// What the tokens' vectors are multiplied with, where they are.
    pub(crate) fn scale(&self, model: &ModelConfig) -> Option<f64> {
        let sinusoidal = matches!(model.positions, PositionsConfig::Sinusoidal(_));
        let scaled = self.scaled.unwrap_or(sinusoidal);
        scaled.then(|| (model.embedding_width() as f64).sqrt())
    }
}

/// A table of vectors.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[entries, width]`; of T5's positions, `[buckets, heads]`
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    /// A table with normal entries.
    pub fn new(shape: [usize; 2], deviation: f64, initial: &mut Initializer) -> Self {
        Self {
            weight: initial.normal(shape, deviation),
        }
    }

    /// The entries that `ids` `[batch, length]` name, `[batch, length, width]`.
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        embedding(self.weight.val(), ids)
    }
}
