//! BART: an encoder-decoder close to the original Transformer, with learned positions. Lewis et al. 2020.

use super::attention_with_biases;
use crate::attention::Role;
use crate::block::BlockConfig;
use crate::embeddings::EmbeddingConfig;
use crate::feed_forward::PlainConfig;
use crate::head::LmHeadConfig;
use crate::positions::LearnedConfig;
use crate::{Activation, ModelConfig, NormConfig, StackConfig};

const DROPOUT: f64 = 0.1;

/// BART base: 139 million parameters.
pub fn bart_base() -> ModelConfig {
    bart(6, 768, 12)
}

fn bart(layers: usize, width: usize, heads: usize) -> ModelConfig {
    let embedding = EmbeddingConfig::default().with_norm(NormConfig::layer());
    let stack = |role: Role| {
        StackConfig::new(50_265, 1024, width)
            .with_role(role)
            .with_embedding(embedding.clone())
            .with_embedding_dropout(DROPOUT)
            // The first two rows are unused.
            .with_positions(LearnedConfig::default().with_offset(2))
    };
    let attention = attention_with_biases(heads).with_dropout(DROPOUT);
    let feed_forward = PlainConfig::new(4 * width).with_activation(Activation::Gelu);
    let block = BlockConfig::post_norm(attention.clone(), feed_forward).with_dropout(DROPOUT);
    let encoder = stack(Role::Bidirectional)
        .with_embedding(embedding.clone().with_shared(true))
        .blocks(layers, block.clone());
    let decoder = stack(Role::Causal).blocks(layers, block.with_cross(attention));
    ModelConfig::encoder_decoder(encoder, decoder)
        .with_head(LmHeadConfig::default().with_tied(true).with_bias(true))
}
