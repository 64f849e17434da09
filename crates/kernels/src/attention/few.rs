//! Products with keys and values where they lie: for few queries, as in decoding from a cache, packing would cost more
//! than it saves.

use std::ops::Range;

use pulp::Simd;

use super::Heads;
use crate::linear::dot;

/// Up to this many queries, nothing is packed.
pub(super) const FEW: usize = 4;

/// Vectors of sums that stay in registers.
const SUMS: usize = 8;

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
    for (out, key) in out.iter_mut().zip(range) {
        *out = dot(simd, query, keys.row(key));
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
    let (blocks, single) = vectors.as_chunks_mut::<SUMS>();
    for (index, block) in blocks.iter_mut().enumerate() {
        add_block(simd, weights, values, first, index * SUMS, block);
    }
    let done = blocks.len() * SUMS;
    for (index, vector) in single.iter_mut().enumerate() {
        let block = std::array::from_mut(vector);
        add_block(simd, weights, values, first, done + index, block);
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
        for lane in 0..N {
            sums[lane] = simd.mul_add_f32s(weight, value[lane], sums[lane]);
        }
    }
    *block = sums;
}
