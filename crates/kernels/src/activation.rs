//! The functions between the two products of a feed-forward layer, alone and as gates. Hendrycks and Gimpel 2016 (GELU),
//! Elfwing et al. 2018 (SiLU), Dauphin et al. 2017 (the sigmoid as a gate), Shazeer 2020 (gates).

use pulp::Simd;

use crate::simd::{decay, normal_distribution};
use crate::sweep::{Step, sweep, threaded};

/// Which function.
///
/// As wide as a register: a kernel that is called for each row is handed its fields in whole words, and a word of which only a byte
/// was just written is not there before all that was written earlier has left for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)`, with the normal distribution itself.
    Gelu,
    /// GELU with an approximation of the distribution by a hyperbolic tangent, as GPT-2 has it.
    GeluTanh,
    /// `x · sigmoid(x)`.
    Silu,
    /// `1 / (1 + e^-x)`, the gate of the gated linear unit.
    Sigmoid,
}

const SQRT_2_OVER_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const CUBIC: f64 = 0.044_715;

/// The function in each lane, for use inside other kernels.
///
/// When `kind` is known to the compiler, the choice costs nothing.
#[inline(always)]
pub fn value<S: Simd>(simd: S, kind: Activation, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    match kind {
        // Not a maximum: that would lose NaN.
        Activation::Relu => simd.select_f32s(simd.less_than_f32s(x, splat(0.0)), splat(0.0), x),
        Activation::Gelu => simd.mul_f32s(x, normal_distribution(simd, x)),
        Activation::GeluTanh => simd.mul_f32s(x, sigmoids(simd, tanh_argument(simd, x))[0]),
        Activation::Silu => simd.mul_f32s(x, sigmoids(simd, x)[0]),
        Activation::Sigmoid => sigmoids(simd, x)[0],
    }
}

/// The derivative of the function in each lane, for use inside other kernels.
#[inline(always)]
pub fn slope<S: Simd>(simd: S, kind: Activation, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    match kind {
        Activation::Relu => {
            let off = simd.less_than_or_equal_f32s(x, splat(0.0));
            simd.select_f32s(off, splat(0.0), splat(1.0))
        }
        Activation::Gelu => {
            const FACTOR: f32 = (SQRT_2_OVER_PI / 2.0) as f32;
            let half = simd.mul_f32s(x, splat(-0.5));
            let density = simd.mul_f32s(decay(simd, simd.mul_f32s(half, x)), splat(FACTOR));
            simd.mul_add_e_f32s(x, density, normal_distribution(simd, x))
        }
        Activation::GeluTanh => {
            const LINEAR: f32 = (2.0 * SQRT_2_OVER_PI) as f32;
            const SQUARE: f32 = (6.0 * SQRT_2_OVER_PI * CUBIC) as f32;
            let [gate, closed] = sigmoids(simd, tanh_argument(simd, x));
            let inner = simd.mul_add_e_f32s(simd.mul_f32s(x, x), splat(SQUARE), splat(LINEAR));
            let away = simd.mul_f32s(simd.mul_f32s(x, gate), closed);
            simd.mul_add_e_f32s(away, inner, gate)
        }
        Activation::Silu => {
            let [gate, closed] = sigmoids(simd, x);
            let away = simd.mul_f32s(x, closed);
            simd.mul_add_e_f32s(gate, away, gate)
        }
        Activation::Sigmoid => {
            let [gate, closed] = sigmoids(simd, x);
            simd.mul_f32s(gate, closed)
        }
    }
}

/// The gradient of the input in each lane: `dy · slope`, but where ReLU is off it is zero even for an infinite `dy`.
#[inline(always)]
pub fn gradient<S: Simd>(simd: S, kind: Activation, x: S::f32s, dy: S::f32s) -> S::f32s {
    if kind == Activation::Relu {
        let zero = simd.splat_f32s(0.0);
        simd.select_f32s(simd.less_than_or_equal_f32s(x, zero), zero, dy)
    } else {
        simd.mul_f32s(dy, slope(simd, kind, x))
    }
}

/// Twice the argument of the hyperbolic tangent: (1 + tanh(u)) / 2 is the sigmoid of 2u.
#[inline(always)]
fn tanh_argument<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let linear = simd.splat_f32s((2.0 * SQRT_2_OVER_PI) as f32);
    let cubic = simd.splat_f32s((2.0 * SQRT_2_OVER_PI * CUBIC) as f32);
    let square = simd.mul_f32s(x, x);
    simd.mul_f32s(x, simd.mul_add_e_f32s(square, cubic, linear))
}

/// The sigmoid of `x` and of `-x`, each with all its digits: one less the other would lose them.
///
/// `1 / (1 + e^-x)` is `e^x / (1 + e^x)`, so that the exponential of minus the size serves both signs.
#[inline(always)]
pub(crate) fn sigmoids<S: Simd>(simd: S, x: S::f32s) -> [S::f32s; 2] {
    let one = simd.splat_f32s(1.0);
    let small = decay(simd, simd.neg_f32s(simd.abs_f32s(x)));
    let inverse = simd.div_f32s(one, simd.add_f32s(one, small));
    let other = simd.mul_f32s(small, inverse);
    let negative = simd.less_than_f32s(x, simd.splat_f32s(0.0));
    [
        simd.select_f32s(negative, other, inverse),
        simd.select_f32s(negative, inverse, other),
    ]
}

/// Compiles the call for each kind, so that the choice is made once and not for each vector.
macro_rules! for_kind {
    ($kind:expr, $constant:ident => $call:expr) => {
        match $kind {
            Activation::Relu => {
                const $constant: usize = Activation::Relu as usize;
                $call
            }
            Activation::Gelu => {
                const $constant: usize = Activation::Gelu as usize;
                $call
            }
            Activation::GeluTanh => {
                const $constant: usize = Activation::GeluTanh as usize;
                $call
            }
            Activation::Silu => {
                const $constant: usize = Activation::Silu as usize;
                $call
            }
            Activation::Sigmoid => {
                const $constant: usize = Activation::Sigmoid as usize;
                $call
            }
        }
    };
}

pub(crate) const KINDS: [Activation; 5] = [
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Sigmoid,
];

/// `y = f(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn activate(kind: Activation, x: &[f32], y: &mut [f32]) {
    for_kind!(kind, KIND => threaded("activate", &Forward::<KIND>, [x], [y]));
}

/// `x = f(x)`, for use inside other kernels.
#[inline(always)]
pub(crate) fn activate_in_place<S: Simd>(simd: S, kind: Activation, x: &mut [f32]) {
    for_kind!(kind, KIND => {
        sweep(simd, &Forward::<KIND>, [], [x]);
    });
}

/// `before = x` and `x = f(x)`, for use inside other kernels.
#[inline(always)]
pub(crate) fn activate_keeping<S: Simd>(
    simd: S,
    kind: Activation,
    x: &mut [f32],
    before: &mut [f32],
) {
    for_kind!(kind, KIND => {
        sweep(simd, &Keeping::<KIND>, [], [x, before]);
    });
}

/// `x = f(gate) · x`, for use inside other kernels.
#[inline(always)]
pub(crate) fn gate_in_place<S: Simd>(simd: S, kind: Activation, gate: &[f32], x: &mut [f32]) {
    for_kind!(kind, KIND => {
        sweep(simd, &Gating::<KIND>, [gate], [x]);
    });
}

/// `d = d · f'(x)` and `x = f(x)`, for use inside other kernels.
#[inline(always)]
pub(crate) fn back_in_place<S: Simd>(simd: S, kind: Activation, x: &mut [f32], d: &mut [f32]) {
    for_kind!(kind, KIND => {
        sweep(simd, &Backward::<KIND>, [], [x, d]);
    });
}

/// Of `f(gate) · up` with gradient `d`: `gate` and `up` become their gradients, and `d` becomes the product itself.
#[inline(always)]
pub(crate) fn back_gated_in_place<S: Simd>(
    simd: S,
    kind: Activation,
    [gate, up]: [&mut [f32]; 2],
    d: &mut [f32],
) {
    for_kind!(kind, KIND => {
        sweep(simd, &Backward::<KIND>, [], [gate, up, d]);
    });
}

/// `dx = dy · f'(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn activate_backward(kind: Activation, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    for_kind!(kind, KIND => threaded("activate_backward", &Backward::<KIND>, [x, dy], [dx]));
}

/// `y = f(gate) · up`.
///
/// # Panics
/// When the lengths differ.
pub fn gated(kind: Activation, gate: &[f32], up: &[f32], y: &mut [f32]) {
    for_kind!(kind, KIND => threaded("gated", &Forward::<KIND>, [gate, up], [y]));
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
        threaded("gated_backward", &Backward::<KIND>, [gate, up, dy], [dgate, dup]);
    });
}

struct Forward<const KIND: usize>;

impl<const KIND: usize> Step<0, 1, 0> for Forward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([value(simd, KINDS[KIND], x)], [])
    }
}

impl<const KIND: usize> Step<1, 1, 0> for Forward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([value(simd, KINDS[KIND], x)], [])
    }
}

/// Keeps what the function is applied to.
struct Keeping<const KIND: usize>;

impl<const KIND: usize> Step<0, 2, 0> for Keeping<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        _: [S::f32s; 0],
        [x, _]: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        ([value(simd, KINDS[KIND], x), x], [])
    }
}

/// Multiplies what is there with the gate.
struct Gating<const KIND: usize>;

impl<const KIND: usize> Step<1, 1, 0> for Gating<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [gate]: [S::f32s; 1],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(value(simd, KINDS[KIND], gate), x)], [])
    }
}

impl<const KIND: usize> Step<2, 1, 0> for Forward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [gate, up]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(value(simd, KINDS[KIND], gate), up)], [])
    }
}

struct Backward<const KIND: usize>;

impl<const KIND: usize> Step<0, 2, 0> for Backward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x, d]: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        let kind = KINDS[KIND];
        ([value(simd, kind, x), gradient(simd, kind, x, d)], [])
    }
}

impl<const KIND: usize> Step<0, 3, 0> for Backward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [gate, up, d]: [S::f32s; 3],
    ) -> ([S::f32s; 3], [S::f32s; 0]) {
        let kind = KINDS[KIND];
        let opened = value(simd, kind, gate);
        let dgate = gradient(simd, kind, gate, simd.mul_f32s(d, up));
        (
            [dgate, simd.mul_f32s(d, opened), simd.mul_f32s(opened, up)],
            [],
        )
    }
}

impl<const KIND: usize> Step<2, 1, 0> for Backward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x, dy]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([gradient(simd, KINDS[KIND], x, dy)], [])
    }
}

impl<const KIND: usize> Step<3, 2, 0> for Backward<KIND> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [gate, up, dy]: [S::f32s; 3],
        _: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 0]) {
        let kind = KINDS[KIND];
        let dgate = gradient(simd, kind, gate, simd.mul_f32s(dy, up));
        let dup = simd.mul_f32s(dy, value(simd, kind, gate));
        ([dgate, dup], [])
    }
}

/// The specification: one number at a time, as PyTorch's documentation writes the formulas.
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
    pub fn slope(kind: Activation, x: f64) -> f64 {
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
