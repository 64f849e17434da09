//! Embeddings of tokens, positions and token types: summed, normalized and projected.

mod adaptive;
mod patches;

use attentive_tensor::embedding;
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

pub(crate) use adaptive::embed;
pub use adaptive::{
    AdaptiveEmbedding, AdaptiveEmbeddingConfig, AdaptiveSoftmax, AdaptiveSoftmaxConfig,
};
pub use patches::{Patches, PatchesConfig};

use crate::checks::{positive, refuse, size, within};
use crate::positions::PositionsConfig;
use crate::setters;
use crate::{ConfigError, Initializer, NormConfig, StackConfig};

/// Settings of the embedding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingConfig {
    /// Width of a factorized embedding, which is projected to the model's width (Lan et al. 2020). Not factorized by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// An adaptive embedding, in place of a single table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveEmbeddingConfig>,
    /// Whether token embeddings are multiplied by √width. By default they are where positions are sinusoidal, which would
    /// dominate them otherwise (Vaswani et al. 2017), and are not elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<bool>,
    /// The number of token types, whose embeddings are added (Devlin et al. 2019); 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub types: usize,
    /// The norm of the sum of all embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormConfig>,
    /// Whether an encoder shares the token embedding of its decoder.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared: bool,
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Far above all use, while the table stays small.
const MAX_TYPES: usize = 1 << 20;

impl EmbeddingConfig {
    setters! {
        with_width(width: usize => Some);
        with_adaptive(adaptive: AdaptiveEmbeddingConfig => Some);
        with_scaled(scaled: bool => Some);
        with_types(types: usize);
        with_norm(norm: NormConfig => Some);
        with_shared(shared: bool);
    }

    /// Whether the settings are valid in `stack`.
    pub(crate) fn validate(&self, stack: &StackConfig) -> Result<(), ConfigError> {
        if let Some(width) = self.width {
            size("embedding.width", width)?;
        }
        if self.types > 0 {
            within("embedding.types", self.types, MAX_TYPES)?;
        }
        if let Some(norm) = &self.norm {
            positive("embedding.norm.epsilon", norm.epsilon())?;
        }
        if let Some(adaptive) = &self.adaptive {
            if self.width.is_some() || self.shared {
                return refuse(
                    "embedding.adaptive",
                    "an adaptive embedding has widths and projections of its own, and is not shared; leave out width and shared",
                );
            }
            adaptive.validate("embedding.adaptive", stack)?;
        }
        if stack.patches.is_none() {
            return Ok(());
        }
        let refused = [
            ("width", self.width.is_some()),
            ("adaptive", self.adaptive.is_some()),
            ("scaled", self.scaled.is_some()),
            ("types", self.types > 0),
            ("shared", self.shared),
        ];
        match refused.into_iter().find(|(_, set)| *set) {
            Some((field, _)) => refuse(
                &format!("embedding.{field}"),
                "it applies to tokens, and this model reads images; leave it out",
            ),
            None => Ok(()),
        }
    }

    /// The scale of token embeddings, where they are scaled.
    pub(crate) fn scale(&self, stack: &StackConfig) -> Option<f64> {
        let sinusoidal = matches!(stack.positions, PositionsConfig::Sinusoidal(_));
        let scaled = self.scaled.unwrap_or(sinusoidal);
        scaled.then(|| (stack.embedding_width() as f64).sqrt())
    }
}

/// An embedding table.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[entries, width]`; of T5's relative positions, `[buckets, heads]`
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    /// A table with normal initial values.
    pub fn new(shape: [usize; 2], std: f64, initializer: &mut Initializer) -> Self {
        Self {
            weight: initializer.normal(shape, std),
        }
    }

    /// The rows of `ids` `[batch, length]`, `[batch, length, width]`.
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        embedding(self.weight.val(), ids)
    }
}
