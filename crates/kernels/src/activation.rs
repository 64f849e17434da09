//! Activation functions, alone and as gates of gated linear units. Hendrycks and Gimpel 2016 (GELU), Elfwing et al. 2018 (SiLU),
//! Dauphin et al. 2017 (GLU), Shazeer 2020 (GEGLU, SwiGLU).

use pulp::Simd;

use crate::map_reduce::{
    Apply, ApplyBackward, ElementwiseFunction, VectorOp, for_variant, map_reduce, parallel_map,
};
use crate::simd::{exp_nonpositive, normal_cdf};

/// An activation function.
///
/// A `usize`, because kernels called per row receive their fields as whole words: loading a word of which only one byte was just
/// stored defeats store-to-load forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)`, exact.
    Gelu,
    /// GELU with the tanh approximation, as in GPT-2.
    GeluTanh,
    /// `x · sigmoid(x)`.
    Silu,
    /// `1 / (1 + e^-x)`, the gate of GLU.
    Sigmoid,
}

const SQRT_2_OVER_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const CUBIC: f64 = 0.044_715;

/// The function in each lane, inside a kernel.
///
/// A compile-time constant `kind` costs nothing.
#[inline(always)]
pub fn value<S: Simd>(simd: S, kind: Activation, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    match kind {
        // Not max, which drops NaN.
        Activation::Relu => simd.select_f32s(simd.less_than_f32s(x, splat(0.0)), splat(0.0), x),
        Activation::Gelu => simd.mul_f32s(x, normal_cdf(simd, x)),
        Activation::GeluTanh => simd.mul_f32s(x, sigmoids(simd, tanh_argument(simd, x))[0]),
        Activation::Silu => simd.mul_f32s(x, sigmoids(simd, x)[0]),
        Activation::Sigmoid => sigmoids(simd, x)[0],
    }
}

/// The derivative of the function in each lane, inside a kernel.
#[inline(always)]
pub fn derivative<S: Simd>(simd: S, kind: Activation, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    match kind {
        Activation::Relu => {
            let off = simd.less_than_or_equal_f32s(x, splat(0.0));
            simd.select_f32s(off, splat(0.0), splat(1.0))
        }
        Activation::Gelu => {
            const FACTOR: f32 = (SQRT_2_OVER_PI / 2.0) as f32;
            let half = simd.mul_f32s(x, splat(-0.5));
            let density =
                simd.mul_f32s(exp_nonpositive(simd, simd.mul_f32s(half, x)), splat(FACTOR));
            simd.mul_add_e_f32s(x, density, normal_cdf(simd, x))
        }
        Activation::GeluTanh => {
            const LINEAR: f32 = (2.0 * SQRT_2_OVER_PI) as f32;
            const SQUARE: f32 = (6.0 * SQRT_2_OVER_PI * CUBIC) as f32;
            let [sigmoid, complement] = sigmoids(simd, tanh_argument(simd, x));
            let inner = simd.mul_add_e_f32s(simd.mul_f32s(x, x), splat(SQUARE), splat(LINEAR));
            let x_slope = simd.mul_f32s(simd.mul_f32s(x, sigmoid), complement);
            simd.mul_add_e_f32s(x_slope, inner, sigmoid)
        }
        Activation::Silu => {
            let [sigmoid, complement] = sigmoids(simd, x);
            let x_complement = simd.mul_f32s(x, complement);
            simd.mul_add_e_f32s(sigmoid, x_complement, sigmoid)
        }
        Activation::Sigmoid => {
            let [sigmoid, complement] = sigmoids(simd, x);
            simd.mul_f32s(sigmoid, complement)
        }
    }
}

/// The gradient of the input in each lane: `dy · f'(x)`, but where ReLU is off it is zero even for an infinite `dy`.
#[inline(always)]
pub fn gradient<S: Simd>(simd: S, kind: Activation, x: S::f32s, dy: S::f32s) -> S::f32s {
    if kind == Activation::Relu {
        let zero = simd.splat_f32s(0.0);
        simd.select_f32s(simd.less_than_or_equal_f32s(x, zero), zero, dy)
    } else {
        simd.mul_f32s(dy, derivative(simd, kind, x))
    }
}

/// Twice the argument of tanh: (1 + tanh(u)) / 2 is the sigmoid of 2u.
#[inline(always)]
fn tanh_argument<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let linear = simd.splat_f32s((2.0 * SQRT_2_OVER_PI) as f32);
    let cubic = simd.splat_f32s((2.0 * SQRT_2_OVER_PI * CUBIC) as f32);
    let square = simd.mul_f32s(x, x);
    simd.mul_f32s(x, simd.mul_add_e_f32s(square, cubic, linear))
}

/// The sigmoids of `x` and of `-x`, each accurate: `1 - sigmoid(x)` would cancel.
///
/// `1 / (1 + e^-x)` is `e^x / (1 + e^x)`, so that `e^-|x|` serves both signs.
#[inline(always)]
pub(crate) fn sigmoids<S: Simd>(simd: S, x: S::f32s) -> [S::f32s; 2] {
    let one = simd.splat_f32s(1.0);
    let power = exp_nonpositive(simd, simd.neg_f32s(simd.abs_f32s(x)));
    let large = simd.div_f32s(one, simd.add_f32s(one, power));
    let small = simd.mul_f32s(power, large);
    let negative = simd.less_than_f32s(x, simd.splat_f32s(0.0));
    [
        simd.select_f32s(negative, small, large),
        simd.select_f32s(negative, large, small),
    ]
}

macro_rules! for_kind {
    ($kind:expr, $constant:ident => $call:expr) => {
        for_variant!($kind, Activation { Relu, Gelu, GeluTanh, Silu, Sigmoid }, $constant => $call)
    };
}

pub(crate) const KINDS: [Activation; 5] = [
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
];

/// The activation `KINDS[KIND]`.
struct ActivationFunction<const KIND: usize>;

impl<const KIND: usize> ElementwiseFunction for ActivationFunction<KIND> {
    #[inline(always)]
    fn value<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        value(simd, KINDS[KIND], x)
    }

    #[inline(always)]
    fn gradient<S: Simd>(&self, simd: S, x: S::f32s, dy: S::f32s) -> S::f32s {
        gradient(simd, KINDS[KIND], x, dy)
    }
}

/// `y = f(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn activate(kind: Activation, x: &[f32], y: &mut [f32]) {
    for_kind!(kind, KIND => parallel_map("activate", &Apply(ActivationFunction::<KIND>), [x], [y]));
}

/// `x = f(x)`, inside a kernel.
#[inline(always)]
pub(crate) fn activate_in_place<S: Simd>(simd: S, kind: Activation, x: &mut [f32]) {
    for_kind!(kind, KIND => {
        map_reduce(simd, &Apply(ActivationFunction::<KIND>), [], [x]);
    });
}

/// `pre_activation = x` and `x = f(x)`, inside a kernel.
#[inline(always)]
pub(crate) fn activate_saving<S: Simd>(
    simd: S,
    kind: Activation,
    x: &mut [f32],
    pre_activation: &mut [f32],
) {
    for_kind!(kind, KIND => {
        map_reduce(simd, &ApplySaving(ActivationFunction::<KIND>), [], [x, pre_activation]);
    });
}

/// `x = f(gate) · x`, inside a kernel.
#[inline(always)]
pub(crate) fn gate_in_place<S: Simd>(simd: S, kind: Activation, gate: &[f32], x: &mut [f32]) {
    for_kind!(kind, KIND => {
        map_reduce(simd, &Gate(ActivationFunction::<KIND>), [gate], [x]);
    });
}

/// `d = d · f'(x)` and `x = f(x)`, inside a kernel.
#[inline(always)]
pub(crate) fn backward_in_place<S: Simd>(simd: S, kind: Activation, x: &mut [f32], d: &mut [f32]) {
    for_kind!(kind, KIND => {
        map_reduce(simd, &ApplyBackward(ActivationFunction::<KIND>), [], [x, d]);
    });
}

/// Backward of `f(gate) · up` with output gradient `d`: replaces `gate` and `up` by their gradients, and `d` by the recomputed
/// product.
#[inline(always)]
pub(crate) fn gated_backward_in_place<S: Simd>(
    simd: S,
    kind: Activation,
    [gate, up]: [&mut [f32]; 2],
    d: &mut [f32],
) {
    for_kind!(kind, KIND => {
        map_reduce(simd, &GateBackward(ActivationFunction::<KIND>), [], [gate, up, d]);
    });
}

/// `dx = dy · f'(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn activate_backward(kind: Activation, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    for_kind!(kind, KIND => {
        parallel_map("activate_backward", &ApplyBackward(ActivationFunction::<KIND>), [x, dy], [dx]);
    });
}

/// `y = f(gate) · up`.
///
/// # Panics
/// When the lengths differ.
pub fn gated(kind: Activation, gate: &[f32], up: &[f32], y: &mut [f32]) {
    for_kind!(kind, KIND => parallel_map("gated", &Gate(ActivationFunction::<KIND>), [gate, up], [y]));
}

/// `dgate = dy · up · f'(gate)` and `dup = dy · f(gate)`.
///
/// # Panics
/// When the lengths differ.
pub fn gated_backward(
    kind: Activation,
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
    dgate: &mut [f32],
    dup: &mut [f32],
) {
    for_kind!(kind, KIND => {
        let op = GateBackward(ActivationFunction::<KIND>);
        parallel_map("gated_backward", &op, [gate, up, dy], [dgate, dup]);
    });
}

/// In place.
impl<F: ElementwiseFunction> VectorOp<0, 1, 0> for Apply<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([self.0.value(simd, x)], [])
    }
}

/// [`Apply`] in place that saves its input.
struct ApplySaving<F>(F);

impl<F: ElementwiseFunction> VectorOp<0, 2, 0> for ApplySaving<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x, _]: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        ([self.0.value(simd, x), x], [])
    }
}

/// In place, and recomputes the value.
impl<F: ElementwiseFunction> VectorOp<0, 2, 0> for ApplyBackward<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x, d]: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        ([self.0.value(simd, x), self.0.gradient(simd, x, d)], [])
    }
}

/// Multiplies by the activated gate.
struct Gate<F>(F);

impl<F: ElementwiseFunction> VectorOp<2, 1, 0> for Gate<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [gate, up]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(self.0.value(simd, gate), up)], [])
    }
}

/// In place.
impl<F: ElementwiseFunction> VectorOp<1, 1, 0> for Gate<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [gate]: [S::f32s; 1],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(self.0.value(simd, gate), x)], [])
    }
}

/// The backward pass of [`Gate`].
struct GateBackward<F>(F);

impl<F: ElementwiseFunction> VectorOp<3, 2, 0> for GateBackward<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [gate, up, dy]: [S::f32s; 3],
        _: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        let dgate = self.0.gradient(simd, gate, simd.mul_f32s(dy, up));
        let dup = simd.mul_f32s(dy, self.0.value(simd, gate));
        ([dgate, dup], [])
    }
}

/// In place, and recomputes the product.
impl<F: ElementwiseFunction> VectorOp<0, 3, 0> for GateBackward<F> {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [gate, up, d]: [S::f32s; 3],
    ) -> ([S::f32s; 3], [S::f32s; 0]) {
        let activated = self.0.value(simd, gate);
        let dgate = self.0.gradient(simd, gate, simd.mul_f32s(d, up));
        let dup = simd.mul_f32s(d, activated);
        ([dgate, dup, simd.mul_f32s(activated, up)], [])
    }
}

/// The specification: one element at a time, with the formulas of PyTorch's documentation.
pub mod naive {
    use super::{Activation, CUBIC, SQRT_2_OVER_PI};
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

    /// The error function, by a series whose terms are all positive.
    pub fn erf(x: f64) -> f64 {
        if x.is_nan() || x.abs() > 6.0 {
            return x.signum();
        }
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term.abs() > 1e-18 * sum.abs() {
            odd += 2.0;
            term *= 2.0 * x * x / odd;
            sum += term;
        }
        FRAC_2_SQRT_PI * (-x * x).exp() * sum
    }

    /// The function.
    pub fn value(kind: Activation, x: f64) -> f64 {
        match kind {
            Activation::Relu if x < 0.0 => 0.0,
            Activation::Relu => x,
            Activation::Gelu => 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2)),
            Activation::GeluTanh => {
                0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + CUBIC * x * x * x)).tanh())
            }
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        }
    }

    /// Its derivative.
    pub fn derivative(kind: Activation, x: f64) -> f64 {
        match kind {
            Activation::Relu if x <= 0.0 => 0.0,
            Activation::Relu => 1.0,
            Activation::Gelu => {
                let density = (-0.5 * x * x).exp() * 0.5 * SQRT_2_OVER_PI;
                0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)) + x * density
            }
            Activation::GeluTanh => {
                let tanh = (SQRT_2_OVER_PI * (x + CUBIC * x * x * x)).tanh();
                let inner = SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
                0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
            }
            Activation::Silu => {
                let sigmoid = 1.0 / (1.0 + (-x).exp());
                sigmoid * (1.0 + x * (1.0 - sigmoid))
            }
            Activation::Sigmoid => 1.0 / ((1.0 + (-x).exp()) * (1.0 + x.exp())),
        }
    }
}

#[cfg(test)]
mod tests;
