//! Positive random features of the softmax kernel, after their product with the projection. Choromanski et al. 2021.
//!
//! Of a row `x` with scores `p = x · Wᵀ` and `n = head_width^-1/4`, the features are
//! `features^-1/2 · (exp(n p - n²|x|²/2 - stabilizer) + epsilon)`. The stabilizer is taken as a constant: no gradient flows
//! through it, as in the authors' code.

use pulp::{Simd, WithSimd};

use crate::gemm::{self, Matrix, Product};
use crate::linear::dot;
use crate::micro::Onto;
use crate::parts::{self, Parts, fits};
use crate::simd::{self, decay};
use crate::sweep::{Step, largest, sweep};
use crate::threads;

/// What is subtracted in the exponent, so that it cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stabilizer {
    /// The largest exponent of the row, or beside an epsilon its largest score.
    RowMaximum,
    /// The same of all rows of the head.
    HeadMaximum,
    /// Nothing; the exponent is at most [`LARGEST_EXPONENT`].
    Constant,
}

/// Where exponents end without a maximum: sums of a million such features times values still are f32 numbers.
pub const LARGEST_EXPONENT: f32 = 60.0;

/// The sizes of rows and features, and what is added to each feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
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

impl Sizes {
    fn rows(&self) -> usize {
        self.heads * self.length
    }

    /// What rows are multiplied with before all else.
    fn scale(&self) -> f32 {
        // Roots are quicker than a power, and this is asked for every row.
        (1.0 / (self.head_width as f64).sqrt().sqrt()) as f32
    }

    /// Half of a row's square, which every exponent loses.
    #[inline(always)]
    fn half<S: Simd>(&self, simd: S, x: &[f32]) -> f32 {
        0.5 * self.scale() * self.scale() * dot(simd, x, x)
    }

    /// What is subtracted as a row's largest number: of the exponents, so that the largest feature is one, or where
    /// something is added to features, of the scores, which leaves features as large beside it as the package has them.
    #[inline(always)]
    fn most<S: Simd>(&self, simd: S, x: &[f32], scores: &[f32]) -> f32 {
        let most = self.scale() * largest(simd, scores);
        if self.epsilon > 0.0 {
            most
        } else {
            most - self.half(simd, x)
        }
    }

    fn ratio(&self) -> f32 {
        (1.0 / (self.features as f64).sqrt()) as f32
    }
}

/// The features of rows `x`, `[heads, length, head_width]`, with a projection `[features, head_width]`.
///
/// # Panics
/// When a slice does not fit the sizes.
pub fn forward(sizes: Sizes, x: &[f32], projection: &[f32], stabilizer: Stabilizer, y: &mut [f32]) {
    let rows = sizes.rows();
    fits("random_features", "x", x.len(), rows * sizes.head_width);
    let numbers = sizes.features * sizes.head_width;
    fits("random_features", "projection", projection.len(), numbers);
    fits("random_features", "y", y.len(), rows * sizes.features);
    if y.is_empty() {
        return;
    }
    let a = Matrix::new(x, rows, sizes.head_width);
    let b = Matrix::new(projection, sizes.features, sizes.head_width).transposed();
    let instructions = simd::instructions();
    let of_head = stabilizer == Stabilizer::HeadMaximum;
    let finish = |row: usize, _: usize, scores: &mut [f32]| {
        // Scores that come as a whole row become features while they are in cache.
        if !of_head && scores.len() == sizes.features {
            let row = Rows {
                sizes,
                stabilizer,
                maxima: &[],
                first: row,
                x: &x[row * sizes.head_width..(row + 1) * sizes.head_width],
                y: scores,
            };
            simd::run(instructions, row);
        }
    };
    let product = Product::new([(a, b)], y, Onto::Replace, finish);
    let is_finished = !of_head && product.finishes_whole_rows();
    threads::together(&[&product]);
    if is_finished {
        return;
    }
    let maxima: Vec<f32> = match stabilizer {
        Stabilizer::HeadMaximum => {
            let heads = x.chunks(sizes.length * sizes.head_width);
            let heads = heads.zip(y.chunks(sizes.length * sizes.features)).collect();
            parts::map(heads, |(x, scores)| {
                simd::run(instructions, Largest { sizes, x, scores })
            })
        }
        Stabilizer::RowMaximum | Stabilizer::Constant => Vec::new(),
    };
    let cut = Parts::of_rows(rows, sizes.features);
    let work: Vec<_> = cut
        .ranges()
        .zip(
            cut.cut(x, sizes.head_width)
                .zip(cut.cut_mut(y, sizes.features)),
        )
        .map(|(range, (x, y))| Rows {
            sizes,
            stabilizer,
            maxima: &maxima,
            first: range.start,
            x,
            y,
        })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

/// The largest number of a head's rows that is subtracted, see [`Sizes::most`].
struct Largest<'a> {
    sizes: Sizes,
    x: &'a [f32],
    scores: &'a [f32],
}

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let Sizes {
            head_width,
            features,
            ..
        } = self.sizes;
        let mut most = f32::NEG_INFINITY;
        for (row, scores) in self.scores.chunks_exact(features).enumerate() {
            let x = &self.x[row * head_width..(row + 1) * head_width];
            most = most.max(self.sizes.most(simd, x, scores));
        }
        most
    }
}

/// Some rows whose scores become features.
struct Rows<'a> {
    sizes: Sizes,
    stabilizer: Stabilizer,
    /// Of each head, where they are asked for.
    maxima: &'a [f32],
    /// The number of the first row.
    first: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Sizes {
            length,
            head_width,
            features,
            ..
        } = self.sizes;
        let scale = self.sizes.scale();
        for (row, y) in self.y.chunks_exact_mut(features).enumerate() {
            let x = &self.x[row * head_width..(row + 1) * head_width];
            let most = match self.stabilizer {
                Stabilizer::RowMaximum => self.sizes.most(simd, x, y),
                Stabilizer::HeadMaximum => self.maxima[(self.first + row) / length],
                Stabilizer::Constant => 0.0,
            };
            let step = Exponentiate {
                scale,
                shift: -self.sizes.half(simd, x) - most,
                ratio: self.sizes.ratio(),
                epsilon: self.sizes.epsilon,
            };
            sweep(simd, &step, [], [y]);
        }
    }
}

struct Exponentiate {
    scale: f32,
    shift: f32,
    ratio: f32,
    epsilon: f32,
}

impl Step<0, 1, 0> for Exponentiate {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        _: [S::f32s; 0],
        [score]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        let splat = |value: f32| simd.splat_f32s(value);
        let exponent = simd.mul_add_f32s(score, splat(self.scale), splat(self.shift));
        let above = simd.greater_than_f32s(exponent, splat(LARGEST_EXPONENT));
        let exponent = simd.select_f32s(above, splat(LARGEST_EXPONENT), exponent);
        // No exponent is large, which is all that it asks.
        let power = decay(simd, exponent);
        let sum = simd.add_f32s(power, splat(self.epsilon));
        ([simd.mul_f32s(sum, splat(self.ratio))], [])
    }
}

/// Where gradients go; those that nobody needs are left out.
#[derive(Debug, Default)]
pub struct Gradients<'a> {
    /// Of the rows, `[heads, length, head_width]`.
    pub x: Option<&'a mut [f32]>,
    /// Of the projection, `[features, head_width]`.
    pub projection: Option<&'a mut [f32]>,
}

/// Gradients of features `y`. What flows back, `dy`, becomes the gradient of the scores.
///
/// # Panics
/// When a slice does not fit the sizes.
pub fn backward(
    sizes: Sizes,
    [x, projection, y]: [&[f32]; 3],
    dy: &mut [f32],
    gradients: Gradients,
) {
    let rows = sizes.rows();
    fits("random_features", "x", x.len(), rows * sizes.head_width);
    fits("random_features", "y", y.len(), rows * sizes.features);
    fits("random_features", "dy", dy.len(), rows * sizes.features);
    let mut sums = vec![0.0; rows];
    if sizes.features > 0 {
        let cut = Parts::of_rows(rows, sizes.features);
        let instructions = simd::instructions();
        let work: Vec<_> = cut
            .cut(y, sizes.features)
            .zip(cut.cut_mut(dy, sizes.features))
            .zip(cut.cut_mut(&mut sums, 1))
            .map(|((y, dy), sums)| Slopes { sizes, y, dy, sums })
            .collect();
        parts::each(work, |part| simd::run(instructions, part));
    }
    let slopes = || Matrix::new(dy, rows, sizes.features);
    let projection = Matrix::new(projection, sizes.features, sizes.head_width);
    if let Some(dx) = gradients.x {
        let scale = sizes.scale();
        gemm::gemm(
            slopes(),
            projection,
            dx,
            Onto::Replace,
            |row, first, values| {
                // The slope of |x|²/2 is x.
                let factor = scale * sums[row];
                let x = &x[row * sizes.head_width + first..][..values.len()];
                for (value, x) in values.iter_mut().zip(x) {
                    *value -= factor * x;
                }
            },
        );
    }
    if let Some(out) = gradients.projection {
        let x = Matrix::new(x, rows, sizes.head_width);
        gemm::gemm(slopes().transposed(), x, out, Onto::Replace, |_, _, _| ());
    }
}

/// Some rows of slopes: `dy` becomes the gradient of the scores, whose exponents' gradients are summed for each row.
struct Slopes<'a> {
    sizes: Sizes,
    y: &'a [f32],
    dy: &'a mut [f32],
    sums: &'a mut [f32],
}

impl WithSimd for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let features = self.sizes.features;
        let step = Slope {
            scale: self.sizes.scale(),
            ratio: self.sizes.ratio(),
            epsilon: self.sizes.epsilon,
            // What was cut off stands at the end, up to the rounding of the exponential.
            end: self.sizes.ratio() * LARGEST_EXPONENT.exp() * 0.999_99,
        };
        for (row, sum) in self.sums.iter_mut().enumerate() {
            let line = row * features..(row + 1) * features;
            let (y, dy) = (&self.y[line.clone()], &mut self.dy[line]);
            [*sum] = sweep(simd, &step, [y], [dy]);
        }
    }
}

struct Slope {
    scale: f32,
    ratio: f32,
    epsilon: f32,
    end: f32,
}

impl Step<1, 1, 1> for Slope {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [y]: [S::f32s; 1],
        [dy]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let splat = |value: f32| simd.splat_f32s(value);
        // The exponential, times the ratio: what epsilon added is taken off again.
        let power = simd.sub_f32s(y, splat(self.ratio * self.epsilon));
        let slope = simd.mul_f32s(dy, power);
        let cut = simd.greater_than_f32s(y, splat(self.end));
        let slope = simd.select_f32s(cut, splat(0.0), slope);
        let scaled = simd.mul_f32s(slope, splat(self.scale));
        ([scaled], [scaled])
    }
}

/// The specification, one number at a time.
pub mod naive {
    use super::{LARGEST_EXPONENT, Sizes, Stabilizer};

    /// The features of rows.
    pub fn forward(
        sizes: Sizes,
        x: &[f64],
        projection: &[f64],
        stabilizer: Stabilizer,
    ) -> Vec<f64> {
        let Sizes {
            head_width,
            features,
            length,
            ..
        } = sizes;
        let (scale, ratio) = (
            (head_width as f64).powf(-0.25),
            (features as f64).powf(-0.5),
        );
        let row = |row: usize| &x[row * head_width..(row + 1) * head_width];
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let score = |index: usize, feature: usize| {
            let direction = &projection[feature * head_width..(feature + 1) * head_width];
            scale * dot(row(index), direction)
        };
        let half = |index: usize| 0.5 * scale * scale * dot(row(index), row(index));
        let most = |rows: std::ops::Range<usize>| {
            rows.flat_map(|index| (0..features).map(move |feature| (index, feature)))
                .map(|(index, feature)| match sizes.epsilon > 0.0 {
                    true => score(index, feature),
                    false => score(index, feature) - half(index),
                })
                .fold(f64::NEG_INFINITY, f64::max)
        };
        let mut y = Vec::new();
        for index in 0..sizes.heads * length {
            let shift = match stabilizer {
                Stabilizer::RowMaximum => most(index..index + 1),
                Stabilizer::HeadMaximum => {
                    most(index / length * length..(index / length + 1) * length)
                }
                Stabilizer::Constant => 0.0,
            };
            for feature in 0..features {
                let exponent = score(index, feature) - half(index) - shift;
                let exponent = exponent.min(f64::from(LARGEST_EXPONENT));
                y.push(ratio * (exponent.exp() + f64::from(sizes.epsilon)));
            }
        }
        y
    }
}

#[cfg(test)]
mod tests;
