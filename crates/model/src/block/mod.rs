//! One transformer block: self-attention, cross-attention in a decoder, and feed-forward, each with a residual connection.

mod residual;
mod sublayer;

use burn::module::Module;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

pub use residual::{Residual, ResidualConfig, Stream};
pub use sublayer::Sublayer;

use crate::attention::{Attention, AttentionConfig, AttentionInput, Role};
use crate::feed_forward::{FeedForward, FeedForwardConfig};
use crate::setters;
use crate::{ForwardContext, Initializer, NormConfig, Site, StackConfig};

/// Where a block normalizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlacement {
    /// The input of each sublayer (pre-norm), as GPT-2 and Llama do: `x + body(norm(x))`.
    Before,
    /// Each residual sum (post-norm), as the original Transformer and BERT do: `norm(x + body(x))`.
    After,
    /// The input and the output of each sublayer, as Gemma 2 does: `x + norm(body(norm(x)))`.
    Both,
}

/// Settings of one block, or of `repeat` consecutive equal ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockConfig {
    /// How many consecutive blocks have these settings.
    #[serde(default = "once")]
    pub repeat: usize,
    /// Dropout on the output of each sublayer.
    #[serde(default)]
    pub dropout: f64,
    /// Where the block normalizes.
    #[serde(default = "before")]
    pub placement: NormPlacement,
    /// The norms of all sublayers.
    pub norm: NormConfig,
    /// Self-attention.
    pub attention: AttentionConfig,
    /// Cross-attention of a decoder to the encoder's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<AttentionConfig>,
    /// The feed-forward layer.
    pub feed_forward: FeedForwardConfig,
}

fn once() -> usize {
    1
}

fn before() -> NormPlacement {
    NormPlacement::Before
}

impl BlockConfig {
    /// LayerNorm before each sublayer, as GPT-2 and ViT do. A stack of such blocks has a final norm too.
    pub fn pre_norm(
        attention: impl Into<AttentionConfig>,
        feed_forward: impl Into<FeedForwardConfig>,
    ) -> Self {
        Self {
            repeat: once(),
            dropout: 0.0,
            placement: before(),
            norm: NormConfig::layer(),
            attention: attention.into(),
            cross: None,
            feed_forward: feed_forward.into(),
        }
    }

    /// LayerNorm after each residual sum, as the original Transformer and BERT do.
    pub fn post_norm(
        attention: impl Into<AttentionConfig>,
        feed_forward: impl Into<FeedForwardConfig>,
    ) -> Self {
        Self::pre_norm(attention, feed_forward).with_placement(NormPlacement::After)
    }

    /// Sets [`cross`](#structfield.cross).
    #[must_use]
    pub fn with_cross(mut self, cross: impl Into<AttentionConfig>) -> Self {
        self.cross = Some(cross.into());
        self
    }

    setters! {
        with_dropout(dropout: f64);
        with_placement(placement: NormPlacement);
        with_norm(norm: NormConfig);
    }
}

/// Attention and feed-forward with their residual connections.
#[derive(Module, Debug)]
pub struct Block {
    attention: Sublayer<Attention>,
    cross: Option<Sublayer<Attention>>,
    feed_forward: Sublayer<FeedForward>,
}

impl Block {
    /// Builds one block of `stack`, whose self-attention has this role.
    pub fn new(
        config: &BlockConfig,
        stack: &StackConfig,
        role: Role,
        initializer: &mut Initializer,
    ) -> Self {
        let width = stack.width;
        let spec = stack.attention_spec(role);
        let wrapped = |attention: &AttentionConfig, role: Role, initializer: &mut Initializer| {
            let attention = attention
                .settings()
                .build(&stack.attention_spec(role), initializer);
            Sublayer::new(attention, config, width, initializer)
        };
        Self {
            attention: wrapped(&config.attention, role, initializer),
            cross: config
                .cross
                .as_ref()
                .map(|cross| wrapped(cross, Role::Cross, initializer)),
            feed_forward: {
                let layer = FeedForward::new(
                    &config.feed_forward,
                    width,
                    spec.init_std,
                    spec.residual_std,
                    initializer,
                );
                Sublayer::new(layer, config, width, initializer)
            },
        }
    }

    /// The device of its weights.
    pub(crate) fn device(&self) -> Device {
        self.feed_forward.body().device()
    }

    /// Resamples random features when due.
    pub(crate) fn resample_features(self, step: u64) -> Self {
        Self {
            attention: self.attention.map_body(|it| it.resample_features(step)),
            ..self
        }
    }

    /// Runs the block as layer number `layer`.
    pub fn forward(&self, residual: Residual, layer: usize, pass: &mut ForwardContext) -> Residual {
        let attend = |attention: &Attention, x, pass: &mut ForwardContext| {
            let input = AttentionInput::self_attention(x, layer);
            attention.forward(input, pass)
        };
        let feed = |feed_forward: &FeedForward, x, pass: &mut ForwardContext| {
            feed_forward.forward(x, pass)
        };
        let stream = match residual {
            Residual::One(stream) => self.attention.forward(stream, pass, attend),
            Residual::Two { x1, x2 } => {
                let x1 = (self.attention).forward_across(x1, x2.clone(), pass, attend);
                let x2 = (self.feed_forward).forward_across(x2, x1.clone(), pass, feed);
                let x2 = pass.observe(Site::Block { layer }, x2);
                return Residual::Two { x1, x2 };
            }
        };
        // Without an encoder's output the whole sublayer is skipped, its norm too.
        let stream = match (&self.cross, pass.memory.clone()) {
            (Some(cross), Some(memory)) => cross.forward(stream, pass, |attention, x, pass| {
                let input = AttentionInput {
                    memory: Some(memory),
                    ..AttentionInput::self_attention(x, layer)
                };
                attention.forward(input, pass)
            }),
            _ => stream,
        };
        let stream = self.feed_forward.forward(stream, pass, feed);
        Residual::One(stream.observed(Site::Block { layer }, pass))
    }
}
