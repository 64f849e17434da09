//! Layer norm and RMS norm over rows, optionally fused with a residual addition, and their gradients. Ba et al. 2016; Zhang and
//! Sennrich 2019.
//!
//! RMS norm is layer norm with a mean of zero; both share all loops. A row is read from memory once: it stays in L1 between the
//! loops.

mod backward;
pub mod naive;
#[cfg(test)]
mod tests;

use pulp::{Simd, WithSimd};

use crate::partition::{self, Partition, check_length};
use crate::simd;
use crate::sweep::{VectorOp, sweep};
use backward::NormBackward;

/// `y = (x - mean) / sqrt(variance + epsilon) · weight + bias` in each row; the rows are as wide as `weight`.
///
/// `mean` and `rstd`, the reciprocal standard deviation, have one value per row and are saved for the backward pass.
///
/// # Panics
/// When the sizes do not match.
pub fn layer_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    y: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    NormForward {
        operation: "layer_norm",
        x,
        sum: None,
        weight,
        bias,
        epsilon,
        y,
        mean: Some(mean),
        rstd,
    }
    .run();
}

/// Adds `x` to `sum` in place, and computes the [`layer_norm`] of the sum.
///
/// # Panics
/// When the sizes do not match.
#[allow(clippy::too_many_arguments)]
pub fn add_layer_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    sum: &mut [f32],
    y: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    NormForward {
        operation: "add_layer_norm",
        x,
        sum: Some(sum),
        weight,
        bias,
        epsilon,
        y,
        mean: Some(mean),
        rstd,
    }
    .run();
}

/// `y = x / sqrt(mean of x² + epsilon) · weight + bias` in each row; the rows are as wide as `weight`.
///
/// `inverse_rms` has one value per row and is saved for the backward pass.
///
/// # Panics
/// When the sizes do not match.
pub fn rms_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    y: &mut [f32],
    inverse_rms: &mut [f32],
) {
    NormForward {
        operation: "rms_norm",
        x,
        sum: None,
        weight,
        bias,
        epsilon,
        y,
        mean: None,
        rstd: inverse_rms,
    }
    .run();
}

/// Adds `x` to `sum` in place, and computes the [`rms_norm`] of the sum.
///
/// # Panics
/// When the sizes do not match.
#[allow(clippy::too_many_arguments)]
pub fn add_rms_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    sum: &mut [f32],
    y: &mut [f32],
    inverse_rms: &mut [f32],
) {
    NormForward {
        operation: "add_rms_norm",
        x,
        sum: Some(sum),
        weight,
        bias,
        epsilon,
        y,
        mean: None,
        rstd: inverse_rms,
    }
    .run();
}

/// The gradients of [`layer_norm`]. For [`add_layer_norm`], `x` is the sum, and `dx` the gradient of both its terms.
///
/// `residual_gradient` is added to `dx`: the gradient of `x` from its other uses, such as a residual connection.
///
/// # Panics
/// When the sizes do not match.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm_backward(
    dy: &[f32],
    residual_gradient: Option<&[f32]>,
    x: &[f32],
    weight: &[f32],
    mean: &[f32],
    rstd: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: Option<&mut [f32]>,
) {
    NormBackward {
        operation: "layer_norm_backward",
        dy,
        residual_gradient,
        x,
        weight,
        mean: Some(mean),
        rstd,
        dx,
        sums_bias: dbias.is_some(),
    }
    .run(dweight, dbias);
}

/// The gradients of [`rms_norm`], as in [`layer_norm_backward`].
///
/// # Panics
/// When the sizes do not match.
#[allow(clippy::too_many_arguments)]
pub fn rms_norm_backward(
    dy: &[f32],
    residual_gradient: Option<&[f32]>,
    x: &[f32],
    weight: &[f32],
    inverse_rms: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: Option<&mut [f32]>,
) {
    NormBackward {
        operation: "rms_norm_backward",
        dy,
        residual_gradient,
        x,
        weight,
        mean: None,
        rstd: inverse_rms,
        dx,
        sums_bias: dbias.is_some(),
    }
    .run(dweight, dbias);
}

/// The forward pass over a range of rows; without a mean it is RMS norm.
struct NormForward<'a> {
    operation: &'static str,
    x: &'a [f32],
    /// Residual that `x` is added to before the norm.
    sum: Option<&'a mut [f32]>,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    epsilon: f32,
    y: &'a mut [f32],
    mean: Option<&'a mut [f32]>,
    rstd: &'a mut [f32],
}

impl NormForward<'_> {
    fn run(self) {
        let (rows, width) = (self.rstd.len(), self.weight.len());
        check_length(self.operation, "x", self.x.len(), rows * width);
        check_length(self.operation, "y", self.y.len(), rows * width);
        if let Some(sum) = &self.sum {
            check_length(self.operation, "sum", sum.len(), rows * width);
        }
        if let Some(bias) = self.bias {
            check_length(self.operation, "bias", bias.len(), width);
        }
        if let Some(mean) = &self.mean {
            check_length(self.operation, "mean", mean.len(), rows);
        }
        let instructions = simd::instructions();
        let parts = Partition::of_rows(rows, width);
        let mut sum = self.sum.map(|sum| parts.split_mut(sum, width));
        let mut mean = self.mean.map(|mean| parts.split_mut(mean, 1));
        let outputs = (parts.split_mut(self.y, width)).zip(parts.split_mut(self.rstd, 1));
        let tasks: Vec<_> = (parts.ranges().zip(outputs))
            .map(|(range, (y, rstd))| {
                let elements = range.start * width..range.end * width;
                NormForward {
                    operation: self.operation,
                    x: &self.x[elements],
                    sum: sum.as_mut().and_then(Iterator::next),
                    weight: self.weight,
                    bias: self.bias,
                    epsilon: self.epsilon,
                    y,
                    mean: mean.as_mut().and_then(Iterator::next),
                    rstd,
                }
            })
            .collect();
        partition::for_each(tasks, |task| simd::run(instructions, task));
    }
}

impl WithSimd for NormForward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let width = self.weight.len();
        for row in 0..self.rstd.len() {
            let elements = row * width..(row + 1) * width;
            let mut x = &self.x[elements.clone()];
            let mut known_sum = None;
            if let Some(sum) = &mut self.sum {
                let sum = &mut sum[elements.clone()];
                let [row_sum] = sweep(simd, &Sum, [x], [&mut *sum]);
                (x, known_sum) = (sum, Some(row_sum));
            }
            let mut mean = 0.0;
            if let Some(means) = &mut self.mean {
                let row_sum = match known_sum {
                    Some(row_sum) => row_sum,
                    None => {
                        let [row_sum] = sweep(simd, &Sum, [x], []);
                        row_sum
                    }
                };
                mean = row_sum / width as f32;
                means[row] = mean;
            }
            let [squares] = sweep(simd, &SquaredDeviations { mean }, [x], []);
            let rstd = 1.0 / (squares / width as f32 + self.epsilon).sqrt();
            self.rstd[row] = rstd;
            let y = &mut self.y[elements];
            let normalize = Normalize { mean, rstd };
            match self.bias {
                Some(bias) => sweep(simd, &normalize, [x, self.weight, bias], [y]),
                None => sweep(simd, &normalize, [x, self.weight], [y]),
            };
        }
    }
}

struct Sum;

impl VectorOp<1, 0, 1> for Sum {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        _: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        ([], [x])
    }
}

impl VectorOp<1, 1, 1> for Sum {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        [residual]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let sum = simd.add_f32s(x, residual);
        ([sum], [sum])
    }
}

struct SquaredDeviations {
    mean: f32,
}

impl VectorOp<1, 0, 1> for SquaredDeviations {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        let centered = simd.sub_f32s(x, simd.splat_f32s(self.mean));
        ([], [simd.mul_f32s(centered, centered)])
    }
}

struct Normalize {
    mean: f32,
    rstd: f32,
}

impl Normalize {
    #[inline(always)]
    fn normalized<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        let centered = simd.sub_f32s(x, simd.splat_f32s(self.mean));
        simd.mul_f32s(centered, simd.splat_f32s(self.rstd))
    }
}

impl VectorOp<2, 1, 0> for Normalize {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x, weight]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(self.normalized(simd, x), weight)], [])
    }
}

impl VectorOp<3, 1, 0> for Normalize {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x, weight, bias]: [S::f32s; 3],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        (
            [simd.mul_add_e_f32s(self.normalized(simd, x), weight, bias)],
            [],
        )
    }
}
