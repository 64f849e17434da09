//! Settings of well-known architectures, to start from. (`checkpoint` reads those of a checkpoint's config.json.)

use crate::attention::{AttentionConfig, FullAttentionConfig, Role};
use crate::block::{BlockConfig, NormPlacement};
use crate::embeddings::EmbeddingConfig;
use crate::feed_forward::{FeedForwardConfig, PlainConfig};
use crate::head::HeadConfig;
use crate::positions::{PositionsConfig, SinusoidalConfig};
use crate::{Activation, ModelConfig, NormConfig, StackConfig};

/// Sizes of the original Transformer; the defaults are those of its base model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerSizes {
    /// Size of the vocabulary, which source and target share.
    pub vocabulary: usize,
    /// The maximum sequence length.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward layers' hidden layer.
    pub hidden_width: usize,
    /// Blocks of the encoder, and of the decoder.
    pub layers: usize,
    /// Dropout on embeddings and on the output of each sublayer.
    pub dropout: f64,
}

impl Default for TransformerSizes {
    fn default() -> Self {
        Self {
            vocabulary: 37_000,
            length: 512,
            width: 512,
            heads: 8,
            hidden_width: 2048,
            layers: 6,
            dropout: 0.1,
        }
    }
}

/// The original Transformer: an encoder and a decoder, post-norm, ReLU, sinusoidal positions, and one matrix for both embeddings
/// and the output projection. Vaswani et al. 2017.
pub fn transformer(sizes: TransformerSizes) -> ModelConfig {
    let stack = |role: Role| {
        let attention = AttentionConfig::Full(FullAttentionConfig {
            scale: None,
            heads: sizes.heads,
            key_value_heads: None,
            head_width: None,
            dropout: 0.0,
            bias: true,
            output_bias: true,
            head_norm: None,
        });
        StackConfig {
            role,
            embedding_dropout: sizes.dropout,
            positions: PositionsConfig::Sinusoidal(SinusoidalConfig::default()),
            blocks: vec![BlockConfig {
                repeat: sizes.layers,
                dropout: sizes.dropout,
                placement: NormPlacement::After,
                norm: NormConfig::Layer { epsilon: 1e-5 },
                cross: (role == Role::Causal).then(|| attention.clone()),
                attention,
                feed_forward: FeedForwardConfig::Plain(PlainConfig {
                    hidden_width: sizes.hidden_width,
                    activation: Activation::Relu,
                    bias: true,
                }),
            }],
            ..StackConfig::new(sizes.vocabulary, sizes.length, sizes.width)
        }
    };
    let encoder = StackConfig {
        embedding: EmbeddingConfig {
            shared: true,
            ..EmbeddingConfig::default()
        },
        ..stack(Role::Bidirectional)
    };
    ModelConfig {
        encoder: Some(Box::new(encoder)),
        ..ModelConfig::with_head(stack(Role::Causal), HeadConfig::Tied)
    }
}
