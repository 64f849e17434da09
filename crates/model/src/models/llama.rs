//! Llama: a causal language model with rotary positions, RMSNorm and gated feed-forward layers, without biases. Touvron et al.
//! 2023.

use crate::attention::FullAttentionConfig;
use crate::block::BlockConfig;
use crate::feed_forward::GatedConfig;
use crate::head::HeadConfig;
use crate::positions::RotaryConfig;
use crate::{ModelConfig, NormConfig};

/// Sizes of a Llama; the defaults are those of the first model of 7 billion parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlamaSizes {
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// The maximum sequence length.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each shared by `heads / key_value_heads` query heads.
    pub key_value_heads: usize,
    /// Width of the feed-forward layers' hidden layer.
    pub hidden_width: usize,
    /// Blocks.
    pub layers: usize,
}

impl Default for LlamaSizes {
    fn default() -> Self {
        Self {
            vocabulary: 32_000,
            length: 2048,
            width: 4096,
            heads: 32,
            key_value_heads: 32,
            hidden_width: 11_008,
            layers: 32,
        }
    }
}

/// A Llama with an output projection of its own. Later versions have another base of the rotary positions, and another epsilon
/// of the norms.
pub fn llama(sizes: LlamaSizes) -> ModelConfig {
    let norm = NormConfig::rms().with_epsilon(1e-6);
    let attention =
        FullAttentionConfig::new(sizes.heads).with_key_value_heads(sizes.key_value_heads);
    let block = BlockConfig::pre_norm(attention, GatedConfig::new(sizes.hidden_width));
    ModelConfig::decoder(sizes.vocabulary, sizes.length, sizes.width)
        .with_positions(RotaryConfig::default())
        .blocks(sizes.layers, block.with_norm(norm.clone()))
        .with_final_norm(norm)
        .with_head(HeadConfig::Separate)
}
