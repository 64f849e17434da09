//! Position-wise feed-forward layers: plain (Vaswani et al. 2017) and gated (Shazeer 2020).

use attentive_tensor::{Activation, feed_forward};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::{Initializer, Linear};

/// Which feed-forward layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FeedForwardConfig {
    /// `down(activation(up(x)))`
    Plain(PlainConfig),
    /// `down(activation(gate(x)) · up(x))`; with SiLU this is SwiGLU, with GELU GeGLU
    Gated(GatedConfig),
}

/// Settings of the plain layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainConfig {
    /// Width between the two maps.
    pub hidden_width: usize,
    /// Between the two maps.
    #[serde(default = "default_plain_activation")]
    pub activation: Activation,
    /// Whether the maps have biases.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// Settings of the gated layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedConfig {
    /// Width between the maps.
    pub hidden_width: usize,
    /// Of the gate.
    #[serde(default = "default_gate_activation")]
    pub activation: Activation,
    /// Whether the maps have biases.
    #[serde(default)]
    pub bias: bool,
}

fn default_plain_activation() -> Activation {
    Activation::GeluTanh
}

fn default_gate_activation() -> Activation {
    Activation::Silu
}

fn yes() -> bool {
    true
}

impl FeedForwardConfig {
    /// Width between the maps.
    pub fn hidden_width(&self) -> usize {
        match self {
            Self::Plain(config) => config.hidden_width,
            Self::Gated(config) => config.hidden_width,
        }
    }
}

/// A feed-forward layer, applied to each position alone.
#[derive(Module, Debug)]
pub struct FeedForward {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    #[module(skip)]
    activation: Activation,
}

impl FeedForward {
    /// Builds the layer; `residual_deviation` is the spread of the map that writes into the residual stream.
    pub fn new(
        config: &FeedForwardConfig,
        width: usize,
        deviation: f64,
        residual_deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        let hidden = config.hidden_width();
        let (activation, bias, gated) = match config {
            FeedForwardConfig::Plain(config) => (config.activation, config.bias, false),
            FeedForwardConfig::Gated(config) => (config.activation, config.bias, true),
        };
        Self {
            gate: gated.then(|| Linear::new(width, hidden, bias, deviation, initial)),
            up: Linear::new(width, hidden, bias, deviation, initial),
            down: Linear::new(hidden, width, bias, residual_deviation, initial),
            activation,
        }
    }

    /// `[…, width]` to `[…, width]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let gate = self.gate.as_ref().map(Linear::operands);
        feed_forward(
            self.activation,
            x,
            gate,
            self.up.operands(),
            self.down.operands(),
        )
    }
}
