//! GPT-2: a causal language model, pre-norm, with learned positions. Radford et al. 2019.

use super::attention_with_biases;
use crate::block::BlockConfig;
use crate::feed_forward::PlainConfig;
use crate::{ModelConfig, NormConfig};

const DROPOUT: f64 = 0.1;

/// GPT-2 small: 124 million parameters.
pub fn gpt2_small() -> ModelConfig {
    gpt2(12, 768, 12)
}

/// GPT-2 medium: 355 million parameters.
pub fn gpt2_medium() -> ModelConfig {
    gpt2(24, 1024, 16)
}

/// GPT-2 large: 774 million parameters.
pub fn gpt2_large() -> ModelConfig {
    gpt2(36, 1280, 20)
}

/// GPT-2 XL: 1.6 billion parameters.
pub fn gpt2_xl() -> ModelConfig {
    gpt2(48, 1600, 25)
}

fn gpt2(layers: usize, width: usize, heads: usize) -> ModelConfig {
    let attention = attention_with_biases(heads).with_dropout(DROPOUT);
    let block = BlockConfig::pre_norm(attention, PlainConfig::new(4 * width));
    ModelConfig::decoder(50_257, 1024, width)
        .with_embedding_dropout(DROPOUT)
        .blocks(layers, block.with_dropout(DROPOUT))
        .with_final_norm(NormConfig::layer())
}
