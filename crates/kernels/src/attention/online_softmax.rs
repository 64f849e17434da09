//! The online softmax of a block of queries over tiles of keys. Milakov and Gimelshein 2018.

use pulp::Simd;

use super::QUERY_BLOCK;
use super::scores::{VisibleSpan, exp_scaled};

/// The softmax state of a block of queries over the keys seen so far.
pub(super) struct OnlineSoftmax<'a> {
    /// The largest score of each row.
    pub row_max: [f32; QUERY_BLOCK],
    /// The sum of `exp(score - max)` of each row.
    pub row_sum: [f32; QUERY_BLOCK],
    /// The values of each row weighted by `exp(score - max)`, in rows of `padded_width`.
    pub accumulator: &'a mut [f32],
    pub padded_width: usize,
}

impl<'a> OnlineSoftmax<'a> {
    /// The state before any key.
    #[inline(always)]
    pub fn new(accumulator: &'a mut [f32], padded_width: usize) -> Self {
        accumulator.fill(0.0);
        Self {
            row_max: [f32::NEG_INFINITY; QUERY_BLOCK],
            row_sum: [0.0; QUERY_BLOCK],
            accumulator,
            padded_width,
        }
    }

    /// Replaces a row of scores by `exp(score - max)` and rescales the row's state; false if every score is minus infinity.
    #[inline(always)]
    pub fn update<S: Simd>(
        &mut self,
        simd: S,
        row: usize,
        scores: &mut [f32],
        span: &VisibleSpan,
        factor: f32,
    ) -> bool {
        let vectors = span.vectors::<S>(scores);
        let old_max = self.row_max[row];
        let new_max = old_max.max(maximum(simd, vectors) * factor);
        if new_max == f32::NEG_INFINITY {
            if scores[span.from..span.to]
                .iter()
                .any(|score| score.is_nan())
            {
                self.row_sum[row] = f32::NAN;
            }
            return false;
        }
        let sum = exponentiate(simd, vectors, factor, new_max);
        if old_max == new_max {
            self.row_sum[row] += sum;
        } else if old_max == f32::NEG_INFINITY {
            self.row_sum[row] += sum;
            self.row_max[row] = new_max;
        } else {
            let rescale = (old_max - new_max).exp();
            self.row_sum[row] = self.row_sum[row] * rescale + sum;
            self.row_max[row] = new_max;
            let width = self.padded_width;
            for value in &mut self.accumulator[row * width..(row + 1) * width] {
                *value *= rescale;
            }
        }
        true
    }
}

/// The maximum, ignoring NaN: the exponential propagates it.
#[inline(always)]
fn maximum<S: Simd>(simd: S, vectors: &[S::f32s]) -> f32 {
    // Four accumulators hide the latency of one. The new value comes first, because a maximum with NaN is its second operand.
    let mut max = [simd.splat_f32s(f32::NEG_INFINITY); 4];
    let (blocks, rest) = vectors.as_chunks::<4>();
    for block in blocks {
        for i in 0..4 {
            max[i] = simd.max_f32s(block[i], max[i]);
        }
    }
    for vector in rest {
        max[0] = simd.max_f32s(*vector, max[0]);
    }
    let [a, b, c, d] = max;
    simd.reduce_max_f32s(simd.max_f32s(simd.max_f32s(a, b), simd.max_f32s(c, d)))
}

/// Replaces each score by `exp(score · factor - max)` and returns the sum.
#[inline(always)]
fn exponentiate<S: Simd>(simd: S, vectors: &mut [S::f32s], factor: f32, max: f32) -> f32 {
    let (factor, shift) = (simd.splat_f32s(factor), simd.splat_f32s(-max));
    let mut sums = [simd.splat_f32s(0.0); 2];
    let (fours, rest) = vectors.as_chunks_mut::<4>();
    for four in fours {
        *four = exp_scaled(simd, *four, factor, shift);
        for i in 0..4 {
            sums[i % 2] = simd.add_f32s(sums[i % 2], four[i]);
        }
    }
    for vector in rest {
        [*vector] = exp_scaled(simd, [*vector], factor, shift);
        sums[0] = simd.add_f32s(sums[0], *vector);
    }
    simd.reduce_sum_f32s(simd.add_f32s(sums[0], sums[1]))
}
