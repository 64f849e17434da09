//! A linear layer. Its weight is stored `[output, input]`, as in checkpoints and as one-token decoding reads it.

use attentive_tensor::{Activation, LinearParameters, activated_linear, linear};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::Initializer;

/// `x · weightᵀ + bias`
#[derive(Module, Debug)]
pub struct Linear {
    /// `[output, input]`
    pub weight: Param<Tensor<2>>,
    /// `[output]`
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// A layer with normal weights and an optional bias of zeros.
    pub fn new(
        input: usize,
        output: usize,
        bias: bool,
        std: f64,
        initializer: &mut Initializer,
    ) -> Self {
        Self {
            weight: initializer.normal([output, input], std),
            bias: bias.then(|| initializer.constant([output], 0.0)),
        }
    }

    /// Projects the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (weight, bias) = self.parameters();
        linear(x, weight, bias)
    }

    /// Projects the last axis, then applies an activation, in one kernel where there are kernels.
    pub fn forward_activated<const D: usize>(
        &self,
        activation: Activation,
        x: Tensor<D>,
    ) -> Tensor<D> {
        let (weight, bias) = self.parameters();
        activated_linear(activation, x, weight, bias)
    }

    /// Weight and bias, for fused operations.
    pub fn parameters(&self) -> LinearParameters {
        (self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}
