//! A linear layer; its weight is kept `[output, input]`, as checkpoints store it and as one-token decoding reads it.

use attentive_tensor::{LinearMap, linear};
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
    /// A layer with normal weights and, if asked for, a bias of zeros.
    pub fn new(
        input: usize,
        output: usize,
        bias: bool,
        deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        Self {
            weight: initial.normal([output, input], deviation),
            bias: bias.then(|| initial.constant([output], 0.0)),
        }
    }

    /// Maps the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (weight, bias) = self.operands();
        linear(x, weight, bias)
    }

    /// Weight and bias, for operations of several maps.
    pub fn operands(&self) -> LinearMap {
        (self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}
