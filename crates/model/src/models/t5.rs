//! T5: an encoder-decoder with relative position biases and a tied, scaled head. Raffel et al. 2020.

use crate::attention::{FullAttentionConfig, Role};
use crate::block::BlockConfig;
use crate::embeddings::EmbeddingConfig;
use crate::feed_forward::PlainConfig;
use crate::head::LmHeadConfig;
use crate::positions::{BucketDirection, T5BucketsConfig};
use crate::{Activation, ModelConfig, NormConfig, StackConfig};

const DROPOUT: f64 = 0.1;

/// Relative positions have no limit, but settings need one: longer than full attention can handle.
const LENGTH: usize = 1 << 16;

/// T5 small, version 1.0: 61 million parameters.
pub fn t5_small() -> ModelConfig {
    t5(6, 512, 8)
}

/// T5 base, version 1.0: 223 million parameters.
pub fn t5_base() -> ModelConfig {
    t5(12, 768, 12)
}

fn t5(layers: usize, width: usize, heads: usize) -> ModelConfig {
    let stack = |role: Role, direction: BucketDirection| {
        StackConfig::new(32_128, LENGTH, width)
            .with_role(role)
            .with_embedding_dropout(DROPOUT)
            .with_init_std(0.05)
            .with_positions(T5BucketsConfig::default().with_direction(direction))
            .with_final_norm(norm())
    };
    // Scores are not scaled; the initialization compensates.
    let attention = FullAttentionConfig::new(heads)
        .with_head_width(64)
        .with_scale(1.0)
        .with_dropout(DROPOUT);
    let feed_forward = PlainConfig::new(4 * width)
        .with_activation(Activation::Relu)
        .with_bias(false);
    let block = BlockConfig::pre_norm(attention.clone(), feed_forward)
        .with_norm(norm())
        .with_dropout(DROPOUT);
    let encoder = stack(Role::Bidirectional, BucketDirection::Bidirectional)
        .with_embedding(EmbeddingConfig::default().with_shared(true))
        .blocks(layers, block.clone());
    let decoder =
        stack(Role::Causal, BucketDirection::Causal).blocks(layers, block.with_cross(attention));
    ModelConfig::encoder_decoder(encoder, decoder)
        .with_head(LmHeadConfig::default().with_tied(true).with_scaled(true))
}

fn norm() -> NormConfig {
    NormConfig::rms().with_epsilon(1e-6)
}
