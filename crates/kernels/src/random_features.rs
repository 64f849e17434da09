//! FAVOR+: positive random features of the softmax kernel. Choromanski et al. 2021.
//!
//! With `p = x · Wᵀ` and `n = head_width^-1/4`, the features of a row `x` are
//! `features^-1/2 · (exp(n p - n²|x|²/2 - stabilizer) + epsilon)`. The stabilizer is detached: it gets no gradient, as in the
//! authors' code.

use pulp::{Simd, WithSimd};

use crate::gemm::{self, Gemm, Matrix};
use crate::linear::dot;
use crate::map_reduce::{VectorOp, map_reduce, max};
use crate::microkernel::Init;
use crate::partition::{self, Partition, check_length};
use crate::simd::{self, exp_nonpositive};
use crate::threads;

/// What is subtracted from the exponents, so that they cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stabilizer {
    /// The largest exponent of the row, or with an epsilon its largest score.
    RowMaximum,
    /// The largest over all rows of the head.
    KeysMaximum,
    /// Nothing; exponents are clamped to [`MAX_EXPONENT`].
    Constant,
}

/// Exponents are clamped to this: sums of a million such features times values still fit in f32.
pub const MAX_EXPONENT: f32 = 60.0;

/// The shape of rows and features, and the epsilon of features.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeatureShape {
    /// Heads of all sequences.
    pub heads: usize,
    /// Rows of a head.
    pub length: usize,
    /// Width of a row.
    pub head_width: usize,
    /// Features of a row.
    pub features: usize,
    /// Added to every exponential.
    pub epsilon: f32,
}

impl FeatureShape {
    fn rows(&self) -> usize {
        self.heads * self.length
    }

    /// `n`, the factor that scales rows.
    fn scale(&self) -> f32 {
        // Square roots are faster than a power, and this is computed for every row.
        (1.0 / (self.head_width as f64).sqrt().sqrt()) as f32
    }

    /// `n²|x|²/2`, which is subtracted from every exponent.
    #[inline(always)]
    fn half_squared_norm<S: Simd>(&self, simd: S, x: &[f32]) -> f32 {
        0.5 * self.scale() * self.scale() * dot(simd, x, x)
    }

    /// The maximum to subtract: of the exponents, so that the largest feature is one, or with an epsilon of the scores, which
    /// keeps the ratio of features to epsilon of the authors' code.
    #[inline(always)]
    fn max_exponent<S: Simd>(&self, simd: S, x: &[f32], scores: &[f32]) -> f32 {
        let max_exponent = self.scale() * max(simd, scores);
        if self.epsilon > 0.0 {
            max_exponent
        } else {
            max_exponent - self.half_squared_norm(simd, x)
        }
    }

    fn normalizer(&self) -> f32 {
        (1.0 / (self.features as f64).sqrt()) as f32
    }
}

/// The features of rows `x`, `[heads, length, head_width]`, with a projection `[features, head_width]`.
///
/// # Panics
/// When a slice does not match the sizes.
pub fn forward(
    shape: FeatureShape,
    x: &[f32],
    projection: &[f32],
    stabilizer: Stabilizer,
    y: &mut [f32],
) {
    let rows = shape.rows();
    check_length("random_features", "x", x.len(), rows * shape.head_width);
    let projection_len = shape.features * shape.head_width;
    check_length(
        "random_features",
        "projection",
        projection.len(),
        projection_len,
    );
    check_length("random_features", "y", y.len(), rows * shape.features);
    if y.is_empty() {
        return;
    }
    let a = Matrix::new(x, rows, shape.head_width);
    let b = Matrix::new(projection, shape.features, shape.head_width).transposed();
    let instructions = simd::instructions();
    let per_head = stabilizer == Stabilizer::KeysMaximum;
    let epilogue = |row: usize, _: usize, scores: &mut [f32]| {
        // Whole rows of scores become features while they are in cache.
        if !per_head && scores.len() == shape.features {
            let row = FeatureRows {
                shape,
                stabilizer,
                head_maxima: &[],
                first: row,
                x: &x[row * shape.head_width..(row + 1) * shape.head_width],
                y: scores,
            };
            simd::run(instructions, row);
        }
    };
    let product = Gemm::new([(a, b)], y, Init::Zero, epilogue);
    let is_done = !per_head && product.epilogue_sees_whole_rows();
    threads::run_all(&[&product]);
    if !is_done {
        exponentiate(shape, x, stabilizer, y);
    }
}

/// Turns the scores `y` of rows `x` into features.
fn exponentiate(shape: FeatureShape, x: &[f32], stabilizer: Stabilizer, y: &mut [f32]) {
    let instructions = simd::instructions();
    let head_maxima: Vec<f32> = match stabilizer {
        Stabilizer::KeysMaximum => {
            let heads = x.chunks(shape.length * shape.head_width);
            let heads = heads.zip(y.chunks(shape.length * shape.features)).collect();
            partition::map(heads, |(x, scores)| {
                simd::run(instructions, HeadMax { shape, x, scores })
            })
        }
        Stabilizer::RowMaximum | Stabilizer::Constant => Vec::new(),
    };
    let parts = Partition::of_rows(shape.rows(), shape.features);
    let tasks: Vec<_> = parts
        .ranges()
        .zip(
            parts
                .split(x, shape.head_width)
                .zip(parts.split_mut(y, shape.features)),
        )
        .map(|(range, (x, y))| FeatureRows {
            shape,
            stabilizer,
            head_maxima: &head_maxima,
            first: range.start,
            x,
            y,
        })
        .collect();
    partition::for_each(tasks, |task| simd::run(instructions, task));
}

/// The maximum over the rows of a head, see [`FeatureShape::max_exponent`].
struct HeadMax<'a> {
    shape: FeatureShape,
    x: &'a [f32],
    scores: &'a [f32],
}

impl WithSimd for HeadMax<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let FeatureShape {
            head_width,
            features,
            ..
        } = self.shape;
        let mut max_exponent = f32::NEG_INFINITY;
        for (row, scores) in self.scores.chunks_exact(features).enumerate() {
            let x = &self.x[row * head_width..(row + 1) * head_width];
            max_exponent = max_exponent.max(self.shape.max_exponent(simd, x, scores));
        }
        max_exponent
    }
}

/// A range of rows whose scores become features.
struct FeatureRows<'a> {
    shape: FeatureShape,
    stabilizer: Stabilizer,
    /// The maximum of each head, for [`Stabilizer::KeysMaximum`].
    head_maxima: &'a [f32],
    /// Index of the first row.
    first: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for FeatureRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let FeatureShape {
            length,
            head_width,
            features,
            ..
        } = self.shape;
        let scale = self.shape.scale();
        for (row, y) in self.y.chunks_exact_mut(features).enumerate() {
            let x = &self.x[row * head_width..(row + 1) * head_width];
            let max_exponent = match self.stabilizer {
                Stabilizer::RowMaximum => self.shape.max_exponent(simd, x, y),
                Stabilizer::KeysMaximum => self.head_maxima[(self.first + row) / length],
                Stabilizer::Constant => 0.0,
            };
            let op = Exponentiate {
                scale,
                shift: -self.shape.half_squared_norm(simd, x) - max_exponent,
                normalizer: self.shape.normalizer(),
                epsilon: self.shape.epsilon,
            };
            map_reduce(simd, &op, [], [y]);
        }
    }
}

struct Exponentiate {
    scale: f32,
    shift: f32,
    normalizer: f32,
    epsilon: f32,
}

impl VectorOp<0, 1, 0> for Exponentiate {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        _: [S::f32s; 0],
        [score]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        let splat = |value: f32| simd.splat_f32s(value);
        let exponent = simd.mul_add_f32s(score, splat(self.scale), splat(self.shift));
        let is_above = simd.greater_than_f32s(exponent, splat(MAX_EXPONENT));
        let exponent = simd.select_f32s(is_above, splat(MAX_EXPONENT), exponent);
        // Exponents are at most MAX_EXPONENT, which this approximation still covers.
        let exponential = exp_nonpositive(simd, exponent);
        let sum = simd.add_f32s(exponential, splat(self.epsilon));
        ([simd.mul_f32s(sum, splat(self.normalizer))], [])
    }
}

/// Where the gradients are written; `None` for those that are not needed.
#[derive(Debug, Default)]
pub struct Gradients<'a> {
    /// The gradient of the rows, `[heads, length, head_width]`.
    pub x: Option<&'a mut [f32]>,
    /// The gradient of the projection, `[features, head_width]`.
    pub projection: Option<&'a mut [f32]>,
}

/// The backward pass of features `y`. `dy` is overwritten with the gradient of the scores.
///
/// # Panics
/// When a slice does not match the sizes.
pub fn backward(
    shape: FeatureShape,
    [x, projection, y]: [&[f32]; 3],
    dy: &mut [f32],
    gradients: Gradients,
) {
    let rows = shape.rows();
    check_length("random_features", "x", x.len(), rows * shape.head_width);
    check_length("random_features", "y", y.len(), rows * shape.features);
    check_length("random_features", "dy", dy.len(), rows * shape.features);
    let mut sums = vec![0.0; rows];
    if shape.features > 0 {
        let parts = Partition::of_rows(rows, shape.features);
        let instructions = simd::instructions();
        let tasks: Vec<_> = parts
            .split(y, shape.features)
            .zip(parts.split_mut(dy, shape.features))
            .zip(parts.split_mut(&mut sums, 1))
            .map(|((y, dy), sums)| ScoreGradients { shape, y, dy, sums })
            .collect();
        partition::for_each(tasks, |task| simd::run(instructions, task));
    }
    let score_gradients = || Matrix::new(dy, rows, shape.features);
    let projection = Matrix::new(projection, shape.features, shape.head_width);
    if let Some(dx) = gradients.x {
        let scale = shape.scale();
        gemm::gemm(
            score_gradients(),
            projection,
            dx,
            Init::Zero,
            |row, first, values| {
                // The gradient of |x|²/2 is x.
                let factor = scale * sums[row];
                let x = &x[row * shape.head_width + first..][..values.len()];
                for (value, x) in values.iter_mut().zip(x) {
                    *value -= factor * x;
                }
            },
        );
    }
    if let Some(out) = gradients.projection {
        let x = Matrix::new(x, rows, shape.head_width);
        gemm::gemm(
            score_gradients().transposed(),
            x,
            out,
            Init::Zero,
            |_, _, _| (),
        );
    }
}

/// A range of rows: `dy` becomes the gradient of the scores, and the gradients of the exponents are summed per row.
struct ScoreGradients<'a> {
    shape: FeatureShape,
    y: &'a [f32],
    dy: &'a mut [f32],
    sums: &'a mut [f32],
}

impl WithSimd for ScoreGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let features = self.shape.features;
        let op = ScoreGradient {
            scale: self.shape.scale(),
            normalizer: self.shape.normalizer(),
            epsilon: self.shape.epsilon,
            // Clamped exponents give this feature, up to the rounding of the exponential.
            max_feature: self.shape.normalizer() * MAX_EXPONENT.exp() * 0.999_99,
        };
        for (row, sum) in self.sums.iter_mut().enumerate() {
            let range = row * features..(row + 1) * features;
            let (y, dy) = (&self.y[range.clone()], &mut self.dy[range]);
            [*sum] = map_reduce(simd, &op, [y], [dy]);
        }
    }
}

struct ScoreGradient {
    scale: f32,
    normalizer: f32,
    epsilon: f32,
    max_feature: f32,
}

impl VectorOp<1, 1, 1> for ScoreGradient {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [y]: [S::f32s; 1],
        [dy]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let splat = |value: f32| simd.splat_f32s(value);
        // The exponential times the normalizer, without the epsilon.
        let exponential = simd.sub_f32s(y, splat(self.normalizer * self.epsilon));
        let gradient = simd.mul_f32s(dy, exponential);
        let is_clamped = simd.greater_than_f32s(y, splat(self.max_feature));
        let gradient = simd.select_f32s(is_clamped, splat(0.0), gradient);
        let scaled = simd.mul_f32s(gradient, splat(self.scale));
        ([scaled], [scaled])
    }
}

/// The specification, one element at a time.
pub mod naive {
    use super::{FeatureShape, MAX_EXPONENT, Stabilizer};

    /// The features of rows.
    pub fn forward(
        shape: FeatureShape,
        x: &[f64],
        projection: &[f64],
        stabilizer: Stabilizer,
    ) -> Vec<f64> {
        let FeatureShape {
            head_width,
            features,
            length,
            ..
        } = shape;
        let (scale, normalizer) = (
            (head_width as f64).powf(-0.25),
            (features as f64).powf(-0.5),
        );
        let row = |row: usize| &x[row * head_width..(row + 1) * head_width];
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let score = |index: usize, feature: usize| {
            let direction = &projection[feature * head_width..(feature + 1) * head_width];
            scale * dot(row(index), direction)
        };
        let half_squared_norm = |index: usize| 0.5 * scale * scale * dot(row(index), row(index));
        let max_exponent = |rows: std::ops::Range<usize>| {
            rows.flat_map(|index| (0..features).map(move |feature| (index, feature)))
                .map(|(index, feature)| match shape.epsilon > 0.0 {
                    true => score(index, feature),
                    false => score(index, feature) - half_squared_norm(index),
                })
                .fold(f64::NEG_INFINITY, f64::max)
        };
        let mut y = Vec::new();
        for index in 0..shape.heads * length {
            let shift = match stabilizer {
                Stabilizer::RowMaximum => max_exponent(index..index + 1),
                Stabilizer::KeysMaximum => {
                    max_exponent(index / length * length..(index / length + 1) * length)
                }
                Stabilizer::Constant => 0.0,
            };
            for feature in 0..features {
                let exponent = score(index, feature) - half_squared_norm(index) - shift;
                let exponent = exponent.min(f64::from(MAX_EXPONENT));
                y.push(normalizer * (exponent.exp() + f64::from(shape.epsilon)));
            }
        }
        y
    }
}

#[cfg(test)]
mod tests;
