//! Normalizations: layer (Ba et al. 2016) and root-mean-square (Zhang and Sennrich 2019).

use attentive_tensor::{NormKind, NormOperands, norm, norm_beside, norm_beside_sum, norm_of_sum};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::Initializer;

/// Which normalization, and what keeps it from dividing by zero.
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
    /// What is added before the division.
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
    /// The shift, `[width]`; the root-mean-square norm has none.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    config: NormConfig,
}

impl Norm {
    /// A norm that starts as a plain normalization: scale one, shift zero.
    pub fn new(config: &NormConfig, width: usize, initial: &mut Initializer) -> Self {
        Self {
            weight: initial.constant([width], 1.0),
            bias: match config {
                NormConfig::Layer { .. } => Some(initial.constant([width], 0.0)),
                NormConfig::Rms { .. } => None,
            },
            config: config.clone(),
        }
    }

    /// Normalizes the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        norm(x, self.operands())
    }

    /// `x` and its norm, for a residual connection around what reads the norm.
    pub fn forward_beside<const D: usize>(&self, x: Tensor<D>) -> [Tensor<D>; 2] {
        norm_beside(x, self.operands())
    }

    /// `x + branch` and its norm, for a residual connection around what reads the norm.
    pub fn forward_beside_sum<const D: usize>(
        &self,
        x: Tensor<D>,
        branch: Tensor<D>,
    ) -> [Tensor<D>; 2] {
        norm_beside_sum(x, branch, self.operands())
    }

    /// The norm of `x + branch`.
    pub fn forward_of_sum<const D: usize>(&self, x: Tensor<D>, branch: Tensor<D>) -> Tensor<D> {
        norm_of_sum(x, branch, self.operands())
    }

    fn operands(&self) -> NormOperands {
        NormOperands {
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
