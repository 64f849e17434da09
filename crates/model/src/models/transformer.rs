//! The original Transformer: an encoder and a decoder, post-norm, ReLU, sinusoidal positions, and one matrix for both embeddings
//! and the output projection. Vaswani et al. 2017.

use super::attention_with_biases;
use crate::attention::Role;
use crate::block::BlockConfig;
use crate::embeddings::EmbeddingConfig;
use crate::feed_forward::PlainConfig;
use crate::positions::SinusoidalConfig;
use crate::{Activation, ModelConfig, StackConfig};

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

/// The base model of the paper: 63 million parameters.
pub fn transformer_base() -> ModelConfig {
    transformer(TransformerSizes::default())
}

/// The big model of the paper: 214 million parameters.
pub fn transformer_big() -> ModelConfig {
    transformer(TransformerSizes {
        width: 1024,
        heads: 16,
        hidden_width: 4096,
        dropout: 0.3,
        ..TransformerSizes::default()
    })
}

/// The Transformer of these sizes.
pub fn transformer(sizes: TransformerSizes) -> ModelConfig {
    let stack = |role: Role| {
        StackConfig::new(sizes.vocabulary, sizes.length, sizes.width)
            .with_role(role)
            .with_embedding_dropout(sizes.dropout)
            .with_positions(SinusoidalConfig::default())
    };
    let attention = attention_with_biases(sizes.heads);
    let feed_forward = PlainConfig::new(sizes.hidden_width).with_activation(Activation::Relu);
    let block = BlockConfig::post_norm(attention.clone(), feed_forward).with_dropout(sizes.dropout);
    let encoder = stack(Role::Bidirectional)
        .with_embedding(EmbeddingConfig::default().with_shared(true))
        .blocks(sizes.layers, block.clone());
    let decoder = stack(Role::Causal).blocks(sizes.layers, block.with_cross(attention));
    ModelConfig::encoder_decoder(encoder, decoder)
}
