//! Position-wise feed-forward layers: plain (Vaswani et al. 2017), gated (Dauphin et al. 2017, Shazeer 2020), and mixtures of
//! such layers of which each token takes a few (Shazeer et al. 2017).

mod dense;
mod experts;
mod routes;

use attentive_tensor::Activation;
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub use dense::Dense;
use dense::Form;
pub use experts::{ExpertForm, ExpertWeighting, Experts, ExpertsConfig};
pub use routes::Routes;

use crate::checks::size;
use crate::{ConfigError, Initializer, Pass};

/// Which feed-forward layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FeedForwardConfig {
    /// `down(activation(up(x)))`
    Plain(PlainConfig),
    /// `down(activation(gate(x)) · up(x))`: with the sigmoid this is GLU, with ReLU ReGLU, with GELU GeGLU, with SiLU SwiGLU
    Gated(GatedConfig),
    /// Several such layers, of which each token takes the few that a router gives it.
    Experts(ExpertsConfig),
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

/// What the rest of a model asks of any feed-forward layer. A new kind adds its arm to each, and nothing elsewhere.
impl FeedForwardConfig {
    /// Width between the maps; of one expert, where there are several.
    pub fn hidden_width(&self) -> usize {
        match self {
            Self::Plain(config) => config.hidden_width,
            Self::Gated(config) => config.hidden_width,
            Self::Experts(config) => config.hidden_width,
        }
    }

    /// Whether the settings can work; `path` is where they stand.
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

    /// Operations per token in a model of this width: of experts, only the active ones and the router.
    pub fn operations(&self, width: u64) -> u64 {
        match self {
            Self::Plain(_) | Self::Gated(_) => self.form().operations(width),
            Self::Experts(config) => config.operations(width),
        }
    }

    /// A few words for a person.
    pub fn describe(&self) -> String {
        match self {
            Self::Plain(_) | Self::Gated(_) => self.form().describe(),
            Self::Experts(config) => config.describe(),
        }
    }

    /// The layer, or one expert of it.
    fn form(&self) -> Form {
        match self {
            Self::Plain(config) => Form {
                gated: ExpertForm::Plain,
                hidden_width: config.hidden_width,
                activation: config.activation,
                bias: config.bias,
            },
            Self::Gated(config) => Form {
                gated: ExpertForm::Gated,
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
    /// Several, of which each token takes a few.
    Experts(Experts),
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
        let mut dense = || {
            Dense::new(
                &config.form(),
                width,
                [deviation, residual_deviation],
                initial,
            )
        };
        match config {
            FeedForwardConfig::Plain(_) | FeedForwardConfig::Gated(_) => Self::Dense(dense()),
            FeedForwardConfig::Experts(config) => {
                let experts = (0..config.experts).map(|_| dense()).collect();
                Self::Experts(Experts::new(config, experts, width, deviation, initial))
            }
        }
    }

    /// `[batch, length, width]` to the same.
    pub fn forward(&self, x: Tensor<3>, pass: &mut Pass) -> Tensor<3> {
        match self {
            Self::Dense(dense) => dense.forward(x),
            Self::Experts(experts) => experts.forward(x, pass),
        }
    }
}
