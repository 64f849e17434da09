//! The backward pass of the norms: two loops over a row that stays in L1.

use pulp::{Simd, WithSimd};

use super::Normalize;
use crate::map_reduce::{VectorOp, map_reduce};
use crate::partition::{self, Partition, check_length};
use crate::simd;

/// The backward pass of [`NormForward`](super::NormForward); of a residual sum, `x` is the sum, and `dx` the gradient of both
/// its terms.
#[derive(Debug)]
pub struct NormBackward<'a> {
    /// The gradient of the result, `[rows, width]`.
    pub dy: &'a [f32],
    /// Added to `dx`: the gradient of `x` from its other uses, such as a residual connection.
    pub residual_gradient: Option<&'a [f32]>,
    /// `[rows, width]`
    pub x: &'a [f32],
    /// `[width]`
    pub weight: &'a [f32],
    /// The mean of each row, from the forward pass; none for RMS norm.
    pub mean: Option<&'a [f32]>,
    /// The reciprocal standard deviation or root mean square of each row, from the forward pass.
    pub rstd: &'a [f32],
    /// The gradient of `x`.
    pub dx: &'a mut [f32],
    /// The gradient of the weight.
    pub dweight: &'a mut [f32],
    /// The gradient of the bias, if it is needed.
    pub dbias: Option<&'a mut [f32]>,
}

impl NormBackward<'_> {
    /// Computes all rows; the gradients of weight and bias are summed over parts of the rows in order.
    ///
    /// # Panics
    /// When the sizes do not match.
    pub fn run(mut self) {
        self.check();
        let width = self.weight.len();
        let instructions = simd::instructions();
        let parts = Partition::of_rows(self.rstd.len(), width);
        let tasks: Vec<_> = (parts.ranges().zip(parts.split_mut(self.dx, width)))
            .map(|(range, dx)| {
                let elements = range.start * width..range.end * width;
                BackwardTask {
                    dy: &self.dy[elements.clone()],
                    residual_gradient: self.residual_gradient.map(|it| &it[elements.clone()]),
                    x: &self.x[elements],
                    weight: self.weight,
                    mean: self.mean.map(|mean| &mean[range.clone()]),
                    rstd: &self.rstd[range],
                    dx,
                    needs_dbias: self.dbias.is_some(),
                }
            })
            .collect();
        self.dweight.fill(0.0);
        if let Some(dbias) = &mut self.dbias {
            dbias.fill(0.0);
        }
        for gradients in partition::map(tasks, |task| simd::run(instructions, task)) {
            let (dweight, dbias) = gradients.split_at(width);
            add_assign(self.dweight, dweight);
            if let Some(sum) = &mut self.dbias {
                add_assign(sum, dbias);
            }
        }
    }

    fn check(&self) {
        let (rows, width) = (self.rstd.len(), self.weight.len());
        let check = |argument, actual, expected| {
            let operation = match self.mean {
                Some(_) => "layer_norm_backward",
                None => "rms_norm_backward",
            };
            check_length(operation, argument, actual, expected);
        };
        check("dy", self.dy.len(), rows * width);
        check("x", self.x.len(), rows * width);
        check("dx", self.dx.len(), rows * width);
        if let Some(residual_gradient) = self.residual_gradient {
            check("residual_gradient", residual_gradient.len(), rows * width);
        }
        check("dweight", self.dweight.len(), width);
        if let Some(dbias) = &self.dbias {
            check("dbias", dbias.len(), width);
        }
        if let Some(mean) = self.mean {
            check("mean", mean.len(), rows);
        }
    }
}

fn add_assign(sums: &mut [f32], terms: &[f32]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += term;
    }
}

/// The backward pass over a range of rows. Returns their gradient of the weight, followed by that of the bias.
struct BackwardTask<'a> {
    dy: &'a [f32],
    residual_gradient: Option<&'a [f32]>,
    x: &'a [f32],
    weight: &'a [f32],
    mean: Option<&'a [f32]>,
    rstd: &'a [f32],
    dx: &'a mut [f32],
    /// Whether the gradient of a bias is needed. Layer norm computes it anyway, along with the mean.
    needs_dbias: bool,
}

impl WithSimd for BackwardTask<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let width = self.weight.len();
        let mut sums = vec![0.0; 2 * width];
        let (dweight, dbias) = sums.split_at_mut(width);
        for row in 0..self.rstd.len() {
            let elements = row * width..(row + 1) * width;
            let (dy, x) = (&self.dy[elements.clone()], &self.x[elements.clone()]);
            let residual_gradient = self.residual_gradient.map(|it| &it[elements.clone()]);
            let dx = &mut self.dx[elements];
            let rstd = self.rstd[row];
            let mean = self.mean.map_or(0.0, |mean| mean[row]);
            let normalize = Normalize { mean, rstd };
            let mut gradient = NormGradient {
                normalize,
                mean: 0.0,
                product: 0.0,
            };
            if self.mean.is_some() || self.needs_dbias {
                let inputs = [dy, x, self.weight];
                let outputs = [&mut *dweight, &mut *dbias];
                let [sum, product] = map_reduce(simd, &gradient.normalize, inputs, outputs);
                if self.mean.is_some() {
                    gradient.mean = sum / width as f32;
                }
                gradient.product = product / width as f32;
            } else {
                let outputs = [&mut *dweight];
                let [product] =
                    map_reduce(simd, &gradient.normalize, [dy, x, self.weight], outputs);
                gradient.product = product / width as f32;
            }
            match residual_gradient {
                Some(residual_gradient) => map_reduce(
                    simd,
                    &gradient,
                    [dy, x, self.weight, residual_gradient],
                    [dx],
                ),
                None => map_reduce(simd, &gradient, [dy, x, self.weight], [dx]),
            };
        }
        sums
    }
}

/// The first loop of the backward pass: the gradients of weight and bias, and the sums that the gradient of `x` needs.
impl VectorOp<3, 2, 2> for Normalize {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight]: [S::f32s; 3],
        [dweight, dbias]: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 2]) {
        let normalized = self.normalized(simd, x);
        let dnormalized = simd.mul_f32s(dy, weight);
        let dweight = simd.mul_add_e_f32s(dy, normalized, dweight);
        let dbias = simd.add_f32s(dy, dbias);
        (
            [dweight, dbias],
            [dnormalized, simd.mul_f32s(dnormalized, normalized)],
        )
    }
}

/// The same for a norm with neither bias nor mean.
impl VectorOp<3, 1, 1> for Normalize {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight]: [S::f32s; 3],
        [dweight]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let normalized = self.normalized(simd, x);
        let dnormalized = simd.mul_f32s(dy, weight);
        let dweight = simd.mul_add_e_f32s(dy, normalized, dweight);
        ([dweight], [simd.mul_f32s(dnormalized, normalized)])
    }
}

/// The second loop: `dx = (dnormalized - mean - normalized · product) · rstd`.
struct NormGradient {
    normalize: Normalize,
    mean: f32,
    product: f32,
}

impl NormGradient {
    #[inline(always)]
    fn dx<S: Simd>(&self, simd: S, dy: S::f32s, x: S::f32s, weight: S::f32s) -> S::f32s {
        let normalized = self.normalize.normalized(simd, x);
        let dnormalized = simd.mul_f32s(dy, weight);
        let projection = simd.mul_add_e_f32s(
            normalized,
            simd.splat_f32s(self.product),
            simd.splat_f32s(self.mean),
        );
        let rstd = simd.splat_f32s(self.normalize.rstd);
        simd.mul_f32s(simd.sub_f32s(dnormalized, projection), rstd)
    }
}

impl VectorOp<3, 1, 0> for NormGradient {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight]: [S::f32s; 3],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([self.dx(simd, dy, x, weight)], [])
    }
}

impl VectorOp<4, 1, 0> for NormGradient {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight, residual_gradient]: [S::f32s; 4],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        (
            [simd.add_f32s(self.dx(simd, dy, x, weight), residual_gradient)],
            [],
        )
    }
}
