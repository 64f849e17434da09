//! Layer norm and root-mean-square norm over rows, alone and of a sum, and their gradients. Ba et al. 2016; Zhang and
//! Sennrich 2019.
//!
//! A root-mean-square norm is a layer norm whose mean is taken for zero; both share all loops. A row is read from memory
//! once: the loops over it find it in the first cache.

mod backward;
pub mod naive;
#[cfg(test)]
mod tests;

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts, fits};
use crate::simd;
use crate::sweep::{Step, sweep};
use backward::Backward;

/// `y = (x - mean) / sqrt(variance + epsilon) · weight + bias` in each row; the rows are as wide as `weight`.
///
/// `mean` and `inverse_deviation` have a number per row and are kept for the backward pass.
///
/// # Panics
/// When the sizes do not fit.
pub fn layer_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    y: &mut [f32],
    mean: &mut [f32],
    inverse_deviation: &mut [f32],
) {
    Forward {
        operation: "layer_norm",
        x,
        sum: None,
        weight,
        bias,
        epsilon,
        y,
        mean: Some(mean),
        inverse: inverse_deviation,
    }
    .run();
}

/// Adds `x` to `sum`, and gives the [`layer_norm`] of that.
///
/// # Panics
/// When the sizes do not fit.
#[allow(clippy::too_many_arguments)]
pub fn add_layer_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    sum: &mut [f32],
    y: &mut [f32],
    mean: &mut [f32],
    inverse_deviation: &mut [f32],
) {
    Forward {
        operation: "add_layer_norm",
        x,
        sum: Some(sum),
        weight,
        bias,
        epsilon,
        y,
        mean: Some(mean),
        inverse: inverse_deviation,
    }
    .run();
}

/// `y = x / sqrt(mean of x² + epsilon) · weight + bias` in each row; the rows are as wide as `weight`.
///
/// `inverse_scale` has a number per row and is kept for the backward pass.
///
/// # Panics
/// When the sizes do not fit.
pub fn rms_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    y: &mut [f32],
    inverse_scale: &mut [f32],
) {
    Forward {
        operation: "rms_norm",
        x,
        sum: None,
        weight,
        bias,
        epsilon,
        y,
        mean: None,
        inverse: inverse_scale,
    }
    .run();
}

/// Adds `x` to `sum`, and gives the [`rms_norm`] of that.
///
/// # Panics
/// When the sizes do not fit.
#[allow(clippy::too_many_arguments)]
pub fn add_rms_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    sum: &mut [f32],
    y: &mut [f32],
    inverse_scale: &mut [f32],
) {
    Forward {
        operation: "add_rms_norm",
        x,
        sum: Some(sum),
        weight,
        bias,
        epsilon,
        y,
        mean: None,
        inverse: inverse_scale,
    }
    .run();
}

/// The gradients of [`layer_norm`]. For [`add_layer_norm`], `x` is the sum, and `dx` the gradient of both its terms.
///
/// `beside` is added to `dx`: the gradient of `x` from whatever else reads it, a residual connection first of all.
///
/// # Panics
/// When the sizes do not fit.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm_backward(
    dy: &[f32],
    beside: Option<&[f32]>,
    x: &[f32],
    weight: &[f32],
    mean: &[f32],
    inverse_deviation: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: Option<&mut [f32]>,
) {
    Backward {
        operation: "layer_norm_backward",
        dy,
        beside,
        x,
        weight,
        mean: Some(mean),
        inverse: inverse_deviation,
        dx,
        sums_bias: dbias.is_some(),
    }
    .run(dweight, dbias);
}

/// The gradients of [`rms_norm`], as [`layer_norm_backward`] gives them.
///
/// # Panics
/// When the sizes do not fit.
#[allow(clippy::too_many_arguments)]
pub fn rms_norm_backward(
    dy: &[f32],
    beside: Option<&[f32]>,
    x: &[f32],
    weight: &[f32],
    inverse_scale: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: Option<&mut [f32]>,
) {
    Backward {
        operation: "rms_norm_backward",
        dy,
        beside,
        x,
        weight,
        mean: None,
        inverse: inverse_scale,
        dx,
        sums_bias: dbias.is_some(),
    }
    .run(dweight, dbias);
}

/// A forward pass over some rows; without a mean it is a root-mean-square norm.
struct Forward<'a> {
    operation: &'static str,
    x: &'a [f32],
    /// What `x` is added to before.
    sum: Option<&'a mut [f32]>,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    epsilon: f32,
    y: &'a mut [f32],
    mean: Option<&'a mut [f32]>,
    inverse: &'a mut [f32],
}

impl Forward<'_> {
    fn run(self) {
        let (rows, width) = (self.inverse.len(), self.weight.len());
        fits(self.operation, "x", self.x.len(), rows * width);
        fits(self.operation, "y", self.y.len(), rows * width);
        if let Some(sum) = &self.sum {
            fits(self.operation, "sum", sum.len(), rows * width);
        }
        if let Some(bias) = self.bias {
            fits(self.operation, "bias", bias.len(), width);
        }
        if let Some(mean) = &self.mean {
            fits(self.operation, "mean", mean.len(), rows);
        }
        let instructions = simd::instructions();
        let parts = Parts::of_rows(rows, width);
        let mut sum = self.sum.map(|sum| parts.cut_mut(sum, width));
        let mut mean = self.mean.map(|mean| parts.cut_mut(mean, 1));
        let outputs = (parts.cut_mut(self.y, width)).zip(parts.cut_mut(self.inverse, 1));
        let work: Vec<_> = (parts.ranges().zip(outputs))
            .map(|(range, (y, inverse))| {
                let numbers = range.start * width..range.end * width;
                Forward {
                    operation: self.operation,
                    x: &self.x[numbers],
                    sum: sum.as_mut().and_then(Iterator::next),
                    weight: self.weight,
                    bias: self.bias,
                    epsilon: self.epsilon,
                    y,
                    mean: mean.as_mut().and_then(Iterator::next),
                    inverse,
                }
            })
            .collect();
        parts::each(work, |part| simd::run(instructions, part));
    }
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let width = self.weight.len();
        for row in 0..self.inverse.len() {
            let numbers = row * width..(row + 1) * width;
            let mut x = &self.x[numbers.clone()];
            let mut total = None;
            if let Some(sum) = &mut self.sum {
                let sum = &mut sum[numbers.clone()];
                let [all] = sweep(simd, &Sum, [x], [&mut *sum]);
                (x, total) = (sum, Some(all));
            }
            let mut centre = 0.0;
            if let Some(mean) = &mut self.mean {
                let total = match total {
                    Some(total) => total,
                    None => {
                        let [total] = sweep(simd, &Sum, [x], []);
                        total
                    }
                };
                centre = total / width as f32;
                mean[row] = centre;
            }
            let [squares] = sweep(simd, &Squares { centre }, [x], []);
            let inverse = 1.0 / (squares / width as f32 + self.epsilon).sqrt();
            self.inverse[row] = inverse;
            let y = &mut self.y[numbers];
            let step = Normalise { centre, inverse };
            match self.bias {
                Some(bias) => sweep(simd, &step, [x, self.weight, bias], [y]),
                None => sweep(simd, &step, [x, self.weight], [y]),
            };
        }
    }
}

struct Sum;

impl Step<1, 0, 1> for Sum {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        _: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        ([], [x])
    }
}

impl Step<1, 1, 1> for Sum {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        [branch]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let sum = simd.add_f32s(x, branch);
        ([sum], [sum])
    }
}

struct Squares {
    centre: f32,
}

impl Step<1, 0, 1> for Squares {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        let centred = simd.sub_f32s(x, simd.splat_f32s(self.centre));
        ([], [simd.mul_f32s(centred, centred)])
    }
}

struct Normalise {
    centre: f32,
    inverse: f32,
}

impl Normalise {
    #[inline(always)]
    fn normal<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        let centred = simd.sub_f32s(x, simd.splat_f32s(self.centre));
        simd.mul_f32s(centred, simd.splat_f32s(self.inverse))
    }
}

impl Step<2, 1, 0> for Normalise {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x, weight]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(self.normal(simd, x), weight)], [])
    }
}

impl Step<3, 1, 0> for Normalise {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x, weight, bias]: [S::f32s; 3],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        (
            [simd.mul_add_e_f32s(self.normal(simd, x), weight, bias)],
            [],
        )
    }
}
