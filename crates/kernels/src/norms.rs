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

use crate::map_reduce::{VectorOp, map_reduce};
use crate::partition::{self, Partition, check_length};
use crate::simd;

pub use backward::NormBackward;

/// The forward pass: `y = (x - mean) / sqrt(variance + epsilon) · weight + bias` in each row, where rows are as wide as
/// `weight`. Without `mean` it is RMS norm: `y = x / sqrt(mean of x² + epsilon) · weight + bias`.
#[derive(Debug)]
pub struct NormForward<'a> {
    /// `[rows, width]`
    pub x: &'a [f32],
    /// A residual, `[rows, width]`: `x` is added to it in place, and the norm is that of the sum.
    pub sum: Option<&'a mut [f32]>,
    /// `[width]`
    pub weight: &'a [f32],
    /// `[width]`
    pub bias: Option<&'a [f32]>,
    /// Added to the variance or mean square.
    pub epsilon: f32,
    /// The result, `[rows, width]`.
    pub y: &'a mut [f32],
    /// The mean of each row, saved for the backward pass; none for RMS norm.
    pub mean: Option<&'a mut [f32]>,
    /// The reciprocal standard deviation or root mean square of each row, saved for the backward pass.
    pub rstd: &'a mut [f32],
}

/// The name of a norm with or without a mean.
fn name(has_mean: bool) -> &'static str {
    match has_mean {
        true => "layer_norm",
        false => "rms_norm",
    }
}

impl NormForward<'_> {
    /// Computes all rows.
    ///
    /// # Panics
    /// When the sizes do not match.
    pub fn run(self) {
        let (rows, width) = (self.rstd.len(), self.weight.len());
        let name = name(self.mean.is_some());
        check_length(name, "x", self.x.len(), rows * width);
        check_length(name, "y", self.y.len(), rows * width);
        if let Some(sum) = &self.sum {
            check_length(name, "sum", sum.len(), rows * width);
        }
        if let Some(bias) = self.bias {
            check_length(name, "bias", bias.len(), width);
        }
        if let Some(mean) = &self.mean {
            check_length(name, "mean", mean.len(), rows);
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
                let [row_sum] = map_reduce(simd, &Sum, [x], [&mut *sum]);
                (x, known_sum) = (sum, Some(row_sum));
            }
            let mut mean = 0.0;
            if let Some(means) = &mut self.mean {
                let row_sum = match known_sum {
                    Some(row_sum) => row_sum,
                    None => {
                        let [row_sum] = map_reduce(simd, &Sum, [x], []);
                        row_sum
                    }
                };
                mean = row_sum / width as f32;
                means[row] = mean;
            }
            let [squares] = map_reduce(simd, &SquaredDeviations { mean }, [x], []);
            let rstd = 1.0 / (squares / width as f32 + self.epsilon).sqrt();
            self.rstd[row] = rstd;
            let y = &mut self.y[elements];
            let normalize = Normalize { mean, rstd };
            match self.bias {
                Some(bias) => map_reduce(simd, &normalize, [x, self.weight, bias], [y]),
                None => map_reduce(simd, &normalize, [x, self.weight], [y]),
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
