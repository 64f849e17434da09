//! The backward pass of the norms: two loops over a row that is in the first cache.

use pulp::{Simd, WithSimd};

use super::Normalise;
use crate::parts::{self, Parts, fits};
use crate::simd;
use crate::sweep::{Step, sweep};

/// A backward pass over some rows. It yields the sums over them for the weight and, behind it, for the bias.
pub(super) struct Backward<'a> {
    pub operation: &'static str,
    pub dy: &'a [f32],
    pub beside: Option<&'a [f32]>,
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub mean: Option<&'a [f32]>,
    pub inverse: &'a [f32],
    pub dx: &'a mut [f32],
    /// Whether the gradient of a bias is wanted. A layer norm sums it up in any case, beside the mean.
    pub sums_bias: bool,
}

impl Backward<'_> {
    /// Does all rows, and adds the sums of their parts up in order.
    pub fn run(self, dweight: &mut [f32], mut dbias: Option<&mut [f32]>) {
        let (rows, width) = (self.inverse.len(), self.weight.len());
        fits(self.operation, "dy", self.dy.len(), rows * width);
        fits(self.operation, "x", self.x.len(), rows * width);
        fits(self.operation, "dx", self.dx.len(), rows * width);
        if let Some(beside) = self.beside {
            fits(self.operation, "beside", beside.len(), rows * width);
        }
        fits(self.operation, "dweight", dweight.len(), width);
        if let Some(dbias) = &dbias {
            fits(self.operation, "dbias", dbias.len(), width);
        }
        if let Some(mean) = self.mean {
            fits(self.operation, "mean", mean.len(), rows);
        }
        let instructions = simd::instructions();
        let parts = Parts::of_rows(rows, width);
        let work: Vec<_> = (parts.ranges().zip(parts.cut_mut(self.dx, width)))
            .map(|(range, dx)| {
                let numbers = range.start * width..range.end * width;
                Backward {
                    operation: self.operation,
                    dy: &self.dy[numbers.clone()],
                    beside: self.beside.map(|beside| &beside[numbers.clone()]),
                    x: &self.x[numbers],
                    weight: self.weight,
                    mean: self.mean.map(|mean| &mean[range.clone()]),
                    inverse: &self.inverse[range],
                    dx,
                    sums_bias: self.sums_bias,
                }
            })
            .collect();
        dweight.fill(0.0);
        if let Some(dbias) = &mut dbias {
            dbias.fill(0.0);
        }
        for part in parts::map(work, |part| simd::run(instructions, part)) {
            let (weights, biases) = part.split_at(width);
            for (sum, term) in dweight.iter_mut().zip(weights) {
                *sum += term;
            }
            for (sum, term) in dbias
                .iter_mut()
                .flat_map(|sums| sums.iter_mut())
                .zip(biases)
            {
                *sum += term;
            }
        }
    }
}

impl WithSimd for Backward<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let width = self.weight.len();
        let mut sums = vec![0.0; 2 * width];
        let (dweight, dbias) = sums.split_at_mut(width);
        for row in 0..self.inverse.len() {
            let numbers = row * width..(row + 1) * width;
            let (dy, x) = (&self.dy[numbers.clone()], &self.x[numbers.clone()]);
            let beside = self.beside.map(|beside| &beside[numbers.clone()]);
            let dx = &mut self.dx[numbers];
            let inverse = self.inverse[row];
            let centre = self.mean.map_or(0.0, |mean| mean[row]);
            let normalise = Normalise { centre, inverse };
            let mut gradient = Gradient {
                normalise,
                mean: 0.0,
                product: 0.0,
            };
            if self.mean.is_some() || self.sums_bias {
                let inputs = [dy, x, self.weight];
                let outputs = [&mut *dweight, &mut *dbias];
                let [sum, product] = sweep(simd, &gradient.normalise, inputs, outputs);
                if self.mean.is_some() {
                    gradient.mean = sum / width as f32;
                }
                gradient.product = product / width as f32;
            } else {
                let outputs = [&mut *dweight];
                let [product] = sweep(simd, &gradient.normalise, [dy, x, self.weight], outputs);
                gradient.product = product / width as f32;
            }
            match beside {
                Some(beside) => sweep(simd, &gradient, [dy, x, self.weight, beside], [dx]),
                None => sweep(simd, &gradient, [dy, x, self.weight], [dx]),
            };
        }
        sums
    }
}

/// The first loop of the backward pass: the gradients of weight and bias, and the sums that follow from mean and deviation.
impl Step<3, 2, 2> for Normalise {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight]: [S::f32s; 3],
        [dweight, dbias]: [S::f32s; 2],
    ) -> ([S::f32s; 2], [S::f32s; 2]) {
        let normal = self.normal(simd, x);
        let dnormal = simd.mul_f32s(dy, weight);
        let dweight = simd.mul_add_e_f32s(dy, normal, dweight);
        let dbias = simd.add_f32s(dy, dbias);
        ([dweight, dbias], [dnormal, simd.mul_f32s(dnormal, normal)])
    }
}

/// The same for a norm with neither bias nor mean.
impl Step<3, 1, 1> for Normalise {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight]: [S::f32s; 3],
        [dweight]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let normal = self.normal(simd, x);
        let dnormal = simd.mul_f32s(dy, weight);
        let dweight = simd.mul_add_e_f32s(dy, normal, dweight);
        ([dweight], [simd.mul_f32s(dnormal, normal)])
    }
}

/// The second loop: `dx = (dnormal - mean - normal · product) / deviation`.
struct Gradient {
    normalise: Normalise,
    mean: f32,
    product: f32,
}

impl Gradient {
    #[inline(always)]
    fn slope<S: Simd>(&self, simd: S, dy: S::f32s, x: S::f32s, weight: S::f32s) -> S::f32s {
        let normal = self.normalise.normal(simd, x);
        let dnormal = simd.mul_f32s(dy, weight);
        let along = simd.mul_add_e_f32s(
            normal,
            simd.splat_f32s(self.product),
            simd.splat_f32s(self.mean),
        );
        let inverse = simd.splat_f32s(self.normalise.inverse);
        simd.mul_f32s(simd.sub_f32s(dnormal, along), inverse)
    }
}

impl Step<3, 1, 0> for Gradient {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight]: [S::f32s; 3],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([self.slope(simd, dy, x, weight)], [])
    }
}

impl Step<4, 1, 0> for Gradient {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [dy, x, weight, beside]: [S::f32s; 4],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.add_f32s(self.slope(simd, dy, x, weight), beside)], [])
    }
}
