//! What a block of queries gathers on its way through the keys: a running softmax. Milakov and Gimelshein 2018.

use pulp::Simd;

use super::QUERIES;
use super::scores::{Seen, powers};

/// What a block of queries has gathered of the keys so far.
pub(super) struct Running<'a> {
    /// Of each row, the largest score.
    pub largest: [f32; QUERIES],
    /// Of each row, the sum of exponentials under it.
    pub totals: [f32; QUERIES],
    /// Of each row, the sum of the values, so weighed, in rows of `padded` numbers.
    pub sums: &'a mut [f32],
    pub padded: usize,
}

impl<'a> Running<'a> {
    /// Nothing gathered yet.
    #[inline(always)]
    pub fn new(sums: &'a mut [f32], padded: usize) -> Self {
        sums.fill(0.0);
        Self {
            largest: [f32::NEG_INFINITY; QUERIES],
            totals: [0.0; QUERIES],
            sums,
            padded,
        }
    }

    /// Turns a row of scores into exponentials under the running maximum, and says whether there is any.
    #[inline(always)]
    pub fn add<S: Simd>(
        &mut self,
        simd: S,
        row: usize,
        line: &mut [f32],
        seen: &Seen,
        factor: f32,
    ) -> bool {
        let vectors = seen.vectors::<S>(line);
        let before = self.largest[row];
        let now = before.max(maximum(simd, vectors) * factor);
        if now == f32::NEG_INFINITY {
            if line[seen.from..seen.to].iter().any(|score| score.is_nan()) {
                self.totals[row] = f32::NAN;
            }
            return false;
        }
        let total = exponentiate(simd, vectors, factor, now);
        if before == now {
            self.totals[row] += total;
        } else if before == f32::NEG_INFINITY {
            self.totals[row] += total;
            self.largest[row] = now;
        } else {
            let decay = (before - now).exp();
            self.totals[row] = self.totals[row] * decay + total;
            self.largest[row] = now;
            for sum in &mut self.sums[row * self.padded..(row + 1) * self.padded] {
                *sum *= decay;
            }
        }
        true
    }
}

/// The largest number, NaN aside: that makes itself felt as an exponential.
#[inline(always)]
fn maximum<S: Simd>(simd: S, vectors: &[S::f32s]) -> f32 {
    // Four under way hide the latency of one. NaN comes first, because a maximum with NaN is its second operand.
    let mut most = [simd.splat_f32s(f32::NEG_INFINITY); 4];
    let (blocks, rest) = vectors.as_chunks::<4>();
    for block in blocks {
        for lane in 0..4 {
            most[lane] = simd.max_f32s(block[lane], most[lane]);
        }
    }
    for vector in rest {
        most[0] = simd.max_f32s(*vector, most[0]);
    }
    let [a, b, c, d] = most;
    simd.reduce_max_f32s(simd.max_f32s(simd.max_f32s(a, b), simd.max_f32s(c, d)))
}

/// Replaces each number by `e^(number · factor - largest)` and gives the sum.
#[inline(always)]
fn exponentiate<S: Simd>(simd: S, vectors: &mut [S::f32s], factor: f32, largest: f32) -> f32 {
    let (factor, shift) = (simd.splat_f32s(factor), simd.splat_f32s(-largest));
    let mut sums = [simd.splat_f32s(0.0); 2];
    let (fours, rest) = vectors.as_chunks_mut::<4>();
    for four in fours {
        *four = powers(simd, *four, factor, shift);
        for i in 0..4 {
            sums[i % 2] = simd.add_f32s(sums[i % 2], four[i]);
        }
    }
    for vector in rest {
        [*vector] = powers(simd, [*vector], factor, shift);
        sums[0] = simd.add_f32s(sums[0], *vector);
    }
    simd.reduce_sum_f32s(simd.add_f32s(sums[0], sums[1]))
}
