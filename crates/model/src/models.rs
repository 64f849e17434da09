//! Well-known architectures as settings, to start from: what a checkpoint's config.json says is read by `checkpoint`.

use crate::{
    Activation, AttentionConfig, BlockConfig, EmbeddingConfig, FeedForwardConfig,
    FullAttentionConfig, HeadConfig, ModelConfig, NormConfig, NormPlacement, PlainConfig,
    PositionsConfig, Role, SinusoidalConfig,
};

/// Sizes of the Transformer of the paper; the defaults are those of its base model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerSizes {
    /// Tokens of source and target together.
    pub vocabulary: usize,
    /// The longest sequence.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Heads of each attention.
    pub heads: usize,
    /// Width between the maps of the feed-forward layers.
    pub hidden_width: usize,
    /// Blocks of the encoder, and as many of the decoder.
    pub layers: usize,
    /// On embeddings and on what sublayers add.
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

/// The Transformer as it was published: an encoder and a decoder, norms after the sums, ReLU, sines and cosines, and one table
/// for source, target and scores. Vaswani et al. 2017.
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
        ModelConfig {
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
            ..ModelConfig::new(sizes.vocabulary, sizes.length, sizes.width)
        }
    };
    let encoder = ModelConfig {
        head: HeadConfig::None,
        embedding: EmbeddingConfig {
            shared: true,
            ..EmbeddingConfig::default()
        },
        ..stack(Role::Bidirectional)
    };
    ModelConfig {
        encoder: Some(Box::new(encoder)),
        ..stack(Role::Causal)
    }
}
