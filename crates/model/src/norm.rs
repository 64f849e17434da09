//! Normalization: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).

use attentive_tensor::{
    NormKind, NormParameters, add_norm, add_norm_with_sum, norm, norm_with_input,
};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::Initializer;

/// The kind of normalization and its epsilon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NormConfig {
    /// Zero mean, unit variance, then a learned scale and shift.
    Layer {
        /// Added to the variance.
        #[serde(default = "default_epsilon")]
        epsilon: f64,
    },
    /// Unit root mean square, then a learned scale.
    Rms {
        /// Added to the mean square.
        #[serde(default = "default_epsilon")]
        epsilon: f64,
    },
}

fn default_epsilon() -> f64 {
    1e-5
}

impl NormConfig {
    /// LayerNorm.
    pub fn layer() -> Self {
        Self::Layer {
            epsilon: default_epsilon(),
        }
    }

    /// RMSNorm.
    pub fn rms() -> Self {
        Self::Rms {
            epsilon: default_epsilon(),
        }
    }

    /// Sets the epsilon.
    #[must_use]
    pub fn with_epsilon(mut self, value: f64) -> Self {
        match &mut self {
            Self::Layer { epsilon } | Self::Rms { epsilon } => *epsilon = value,
        }
        self
    }

    /// The epsilon that prevents division by zero.
    pub fn epsilon(&self) -> f64 {
        match self {
            Self::Layer { epsilon } | Self::Rms { epsilon } => *epsilon,
        }
    }
}

/// A normalization over the last axis.
#[derive(Module, Debug)]
pub struct Norm {
    /// The scale, `[width]`.
    pub weight: Param<Tensor<1>>,
    /// The shift, `[width]`; RMSNorm has none.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    config: NormConfig,
}

impl Norm {
    /// A norm with scale one and shift zero.
    pub fn new(config: &NormConfig, width: usize, initializer: &mut Initializer) -> Self {
        Self {
            weight: initializer.constant([width], 1.0),
            bias: match config {
                NormConfig::Layer { .. } => Some(initializer.constant([width], 0.0)),
                NormConfig::Rms { .. } => None,
            },
            config: config.clone(),
        }
    }

    /// Normalizes the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        norm(x, self.parameters())
    }

    /// `x` and its norm. `x` is returned for the residual connection.
    pub fn forward_with_input<const D: usize>(&self, x: Tensor<D>) -> [Tensor<D>; 2] {
        norm_with_input(x, self.parameters())
    }

    /// `x + branch` and its norm. The sum is returned for the residual connection.
    pub fn add_norm_with_sum<const D: usize>(
        &self,
        x: Tensor<D>,
        branch: Tensor<D>,
    ) -> [Tensor<D>; 2] {
        add_norm_with_sum(x, branch, self.parameters())
    }

    /// The norm of `x + branch`.
    pub fn add_norm<const D: usize>(&self, x: Tensor<D>, branch: Tensor<D>) -> Tensor<D> {
        add_norm(x, branch, self.parameters())
    }

    fn parameters(&self) -> NormParameters {
        NormParameters {
            kind: match self.config {
                NormConfig::Layer { .. } => NormKind::Layer,
                NormConfig::Rms { .. } => NormKind::Rms,
            },
            weight: self.weight.val(),
            bias: self.bias.as_ref().map(Param::val),
            epsilon: self.config.epsilon(),
        }
    }
}
