//! Products with keys and values where they lie: for few queries, as in decoding from a cache, packing would cost more
//! than it saves.

use std::ops::Range;

use pulp::Simd;

use super::Heads;
use crate::linear::{self, AHEAD};
use crate::simd;

/// Up to this many queries, nothing is packed.
pub(super) const FEW: usize = 4;

/// The rows of one head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub heads: Heads<'a>,
    pub batch: usize,
    pub head: usize,
    pub width: usize,
}

impl<'a> Lines<'a> {
    #[inline(always)]
    fn row(&self, row: usize) -> &'a [f32] {
        self.heads.row(self.batch, self.head, row, self.width)
    }
}

/// The dot products of a query with some keys.
#[inline(always)]
pub(super) fn dots<S: Simd>(
    simd: S,
    query: &[f32],
    keys: Lines,
    range: Range<usize>,
    out: &mut [f32],
) {
    /// Keys that are read at a time, where there are registers for their sums.
    const TOGETHER: usize = 4;
    let together = match S::REGISTER_COUNT {
        0..32 => 0,
        _ => range.len() / TOGETHER * TOGETHER,
    };
    let (fours, rest) = out[..range.len()].split_at_mut(together);
    let fours = fours.as_chunks_mut::<TOGETHER>().0;
    for (four, first) in fours.iter_mut().zip(range.clone().step_by(TOGETHER)) {
        let mut rows: [&[f32]; TOGETHER] = [&[]; TOGETHER];
        for (row, key) in rows.iter_mut().zip(first..) {
            *row = keys.row(key);
        }
        *four = linear::dots::<S, TOGETHER, true>(simd, query, rows);
    }
    for (out, key) in rest.iter_mut().zip(range.start + together..) {
        *out = linear::dot(simd, query, keys.row(key));
    }
}

/// Adds some values to the sums, each times its weight.
#[inline(always)]
pub(super) fn add_weighted<S: Simd>(
    simd: S,
    weights: &[f32],
    values: Lines,
    first: usize,
    sums: &mut [f32],
) {
    let sums = &mut sums[..values.width];
    let (vectors, rest) = S::as_mut_simd_f32s(sums);
    let whole = vectors.len() * S::F32_LANES;
    // Several vectors of a value at a time: most rows are then read once.
    let (eights, left) = vectors.as_chunks_mut::<8>();
    let (fours, singles) = left.as_chunks_mut::<4>();
    let mut from = 0;
    for block in eights {
        add_block(simd, weights, values, first, from, block);
        from += block.len();
    }
    for block in fours {
        add_block(simd, weights, values, first, from, block);
        from += block.len();
    }
    for vector in singles {
        let block = std::array::from_mut(vector);
        add_block(simd, weights, values, first, from, block);
        from += block.len();
    }
    if rest.is_empty() {
        return;
    }
    for (weight, key) in weights.iter().zip(first..) {
        for (sum, value) in rest.iter_mut().zip(&values.row(key)[whole..]) {
            *sum += weight * value;
        }
    }
}

/// Adds the vectors `from..from + N` of the values.
#[inline(always)]
fn add_block<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    values: Lines,
    first: usize,
    from: usize,
    block: &mut [S::f32s; N],
) {
    let mut sums = *block;
    for (weight, key) in weights.iter().zip(first..) {
        let weight = simd.splat_f32s(*weight);
        let value = &S::as_simd_f32s(values.row(key)).0[from..from + N];
        simd::fetch_far(
            value.as_ptr().cast::<f32>().wrapping_add(AHEAD),
            N * S::F32_LANES,
        );
        for lane in 0..N {
            sums[lane] = simd.mul_add_f32s(weight, value[lane], sums[lane]);
        }
    }
    *block = sums;
}
