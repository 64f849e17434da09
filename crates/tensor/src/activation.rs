//! Activations: ReLU; GELU, exact and by tanh (Hendrycks and Gimpel 2016); SiLU (Elfwing et al. 2017);
//! the sigmoid, as a gate (Dauphin et al. 2017).

use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

use crate::fused;

/// A function applied to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x Φ(x)` with the exact normal distribution
    Gelu,
    /// `x Φ(x)` with the distribution approximated by tanh, as GPT-2 was trained
    GeluTanh,
    /// `x sigmoid(x)`
    Silu,
    /// `1 / (1 + e^-x)`, the gate of the gated linear unit (GLU)
    Sigmoid,
}

/// Applies `kind` to every element of `x`.
pub fn activate<const D: usize>(kind: Activation, x: Tensor<D>) -> Tensor<D> {
    if fused::has_kernels(&x) {
        return fused::activate(x, kind);
    }
    composed(kind, x)
}

/// `activation(gate) · up`, element by element.
///
/// # Panics
/// When the shapes differ.
pub fn gated<const D: usize>(kind: Activation, gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    assert_eq!(
        gate.dims(),
        up.dims(),
        "gated: gate {:?} does not match up {:?}",
        gate.dims(),
        up.dims()
    );
    if fused::has_kernels(&gate) {
        return fused::gated(gate, up, kind);
    }
    composed(kind, gate) * up
}

fn composed<const D: usize>(kind: Activation, x: Tensor<D>) -> Tensor<D> {
    match kind {
        Activation::Relu => activation::relu(x),
        Activation::Gelu => activation::gelu(x),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::Silu => activation::silu(x),
        Activation::Sigmoid => activation::sigmoid(x),
    }
}

/// `x (1 + tanh(z)) / 2` with `z = sqrt(2/π) (x + 0.044715 x³)`, written with `(1 + tanh(z)) / 2 = sigmoid(2z)`: one
/// exponential per element instead of a tanh and a power.
fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let twice_root = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    let cube = x.clone() * x.clone() * x.clone();
    x.clone() * activation::sigmoid((cube * 0.044715 + x) * twice_root)
}
