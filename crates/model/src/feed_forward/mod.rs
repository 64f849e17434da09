//! Position-wise feed-forward layers: plain (Vaswani et al. 2017), gated (Dauphin et al. 2017, Shazeer 2020), and mixtures of
//! experts (Shazeer et al. 2017).

mod dense;
mod experts;
mod routing;

use attentive_tensor::Activation;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

pub use dense::Dense;
use dense::LayerShape;
pub use experts::{ExpertForm, ExpertWeighting, Experts, ExpertsConfig};
pub use routing::Routing;

use crate::builders::from_kinds;
use crate::checks::size;
use crate::setters;
use crate::{ConfigError, ForwardContext, Initializer};

/// Which feed-forward layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FeedForwardConfig {
    /// `down(activation(up(x)))`
    Plain(PlainConfig),
    /// `down(activation(gate(x)) · up(x))`: with the sigmoid this is GLU, with ReLU ReGLU, with GELU GeGLU, with SiLU SwiGLU
    Gated(GatedConfig),
    /// A mixture of experts: several such layers, a few of which a router chooses for each token.
    Experts(ExpertsConfig),
}

from_kinds!(FeedForwardConfig: Plain(PlainConfig), Gated(GatedConfig), Experts(ExpertsConfig));

/// Settings of the plain layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainConfig {
    /// Width of the hidden layer.
    pub hidden_width: usize,
    /// The activation of the hidden layer.
    #[serde(default = "default_plain_activation")]
    pub activation: Activation,
    /// Whether the projections have biases.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl PlainConfig {
    /// A hidden layer of this width.
    pub fn new(hidden_width: usize) -> Self {
        Self {
            hidden_width,
            activation: default_plain_activation(),
            bias: yes(),
        }
    }

    setters! {
        with_activation(activation: Activation);
        with_bias(bias: bool);
    }
}

/// Settings of the gated layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedConfig {
    /// Width of the hidden layer.
    pub hidden_width: usize,
    /// The activation of the gate.
    #[serde(default = "default_gate_activation")]
    pub activation: Activation,
    /// Whether the projections have biases.
    #[serde(default)]
    pub bias: bool,
}

impl GatedConfig {
    /// A hidden layer of this width.
    pub fn new(hidden_width: usize) -> Self {
        Self {
            hidden_width,
            activation: default_gate_activation(),
            bias: false,
        }
    }

    setters! {
        with_activation(activation: Activation);
        with_bias(bias: bool);
    }
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

/// The interface of all kinds of feed-forward layers. A new kind adds an arm to each method, and nothing elsewhere.
impl FeedForwardConfig {
    /// Width of the hidden layer, or of each expert's.
    pub fn hidden_width(&self) -> usize {
        match self {
            Self::Plain(config) => config.hidden_width,
            Self::Gated(config) => config.hidden_width,
            Self::Experts(config) => config.hidden_width,
        }
    }

    /// Whether the settings are valid; `path` names them in errors.
    pub(crate) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        size(&format!("{path}.hidden_width"), self.hidden_width())?;
        match self {
            Self::Plain(_) | Self::Gated(_) => Ok(()),
            Self::Experts(config) => config.validate(path),
        }
    }

    /// The same settings with implied values written out.
    #[must_use]
    pub fn canonical(&self) -> Self {
        match self {
            Self::Plain(_) | Self::Gated(_) => self.clone(),
            Self::Experts(config) => Self::Experts(config.canonical()),
        }
    }

    /// Flops per token in a model of this width: of a mixture, those of the router and of the active experts.
    pub fn flops(&self, width: u64) -> u64 {
        match self {
            Self::Plain(_) | Self::Gated(_) => self.shape().flops(width),
            Self::Experts(config) => config.flops(width),
        }
    }

    /// A short description for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Plain(_) | Self::Gated(_) => self.shape().describe(),
            Self::Experts(config) => config.describe(),
        }
    }

    /// The shape of the layer, or of one expert.
    fn shape(&self) -> LayerShape {
        match self {
            Self::Plain(config) => LayerShape {
                form: ExpertForm::Plain,
                hidden_width: config.hidden_width,
                activation: config.activation,
                bias: config.bias,
            },
            Self::Gated(config) => LayerShape {
                form: ExpertForm::Gated,
                hidden_width: config.hidden_width,
                activation: config.activation,
                bias: config.bias,
            },
            Self::Experts(config) => config.expert(),
        }
    }
}

/// A feed-forward layer, applied to each position alone.
#[derive(Module, Debug)]
pub enum FeedForward {
    /// One layer for all tokens.
    Dense(Dense),
    /// A mixture of experts.
    Experts(Experts),
}

impl FeedForward {
    /// Builds the layer; `residual_std` initializes the projection that writes into the residual stream.
    pub fn new(
        config: &FeedForwardConfig,
        width: usize,
        std: f64,
        residual_std: f64,
        initializer: &mut Initializer,
    ) -> Self {
        let mut dense = || Dense::new(&config.shape(), width, [std, residual_std], initializer);
        match config {
            FeedForwardConfig::Plain(_) | FeedForwardConfig::Gated(_) => Self::Dense(dense()),
            FeedForwardConfig::Experts(config) => {
                let experts = (0..config.experts).map(|_| dense()).collect();
                Self::Experts(Experts::new(config, experts, width, std, initializer))
            }
        }
    }

    /// The device of its weights.
    pub(crate) fn device(&self) -> Device {
        match self {
            Self::Dense(dense) => dense.device(),
            Self::Experts(experts) => experts.device(),
        }
    }

    /// `[batch, length, width]` to the same.
    pub fn forward(&self, x: Tensor<3>, pass: &mut ForwardContext) -> Tensor<3> {
        match self {
            Self::Dense(dense) => dense.forward(x),
            Self::Experts(experts) => experts.forward(x, pass),
        }
    }
}
