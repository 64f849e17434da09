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

/// Keys or values that are read at a time, far apart: memory gives more when it is asked in several places.
const PLACES: usize = 4;

/// The dot products of a query with some keys.
#[inline(always)]
pub(super) fn dots<S: Simd>(
    simd: S,
    query: &[f32],
    keys: Lines,
    range: Range<usize>,
    out: &mut [f32],
) {
    // It takes registers for the sums.
    let each = match S::REGISTER_COUNT {
        0..32 => 0,
        _ => range.len() / PLACES,
    };
    for step in 0..each {
        let mut rows: [&[f32]; PLACES] = [&[]; PLACES];
        for (place, row) in rows.iter_mut().enumerate() {
            *row = keys.row(range.start + place * each + step);
        }
        let results = linear::dots::<S, PLACES, true>(simd, query, rows);
        for (place, result) in results.into_iter().enumerate() {
            out[place * each + step] = result;
        }
    }
    let rest = PLACES * each..range.len();
    for (out, key) in out[rest.clone()].iter_mut().zip(range.start + rest.start..) {
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
        add_block::<S, 8, 1>(simd, weights, values, first, from, block);
        from += block.len();
    }
    for block in fours {
        match S::REGISTER_COUNT {
            0..32 => add_block::<S, 4, 1>(simd, weights, values, first, from, block),
            _ => add_block::<S, 4, PLACES>(simd, weights, values, first, from, block),
        }
        from += block.len();
    }
    for vector in singles {
        let block = std::array::from_mut(vector);
        add_block::<S, 1, PLACES>(simd, weights, values, first, from, block);
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

/// Adds the vectors `from..from + N` of the values, in `P` places at a time.
#[inline(always)]
fn add_block<S: Simd, const N: usize, const P: usize>(
    simd: S,
    weights: &[f32],
    values: Lines,
    first: usize,
    from: usize,
    block: &mut [S::f32s; N],
) {
    let each = weights.len() / P;
    let mut sums = [[simd.splat_f32s(0.0); N]; P];
    for step in 0..each {
        for (place, sums) in sums.iter_mut().enumerate() {
            let index = place * each + step;
            let value = &S::as_simd_f32s(values.row(first + index)).0[from..from + N];
            let ahead = value.as_ptr().cast::<f32>().wrapping_add(AHEAD / P);
            simd::fetch_far(ahead, N * S::F32_LANES);
            add_multiple(simd, weights[index], value, sums);
        }
    }
    for (weight, key) in weights[P * each..].iter().zip(first + P * each..) {
        let value = &S::as_simd_f32s(values.row(key)).0[from..from + N];
        add_multiple(simd, *weight, value, &mut sums[0]);
    }
    for lane in 0..N {
        for sums in &sums {
            block[lane] = simd.add_f32s(block[lane], sums[lane]);
        }
    }
}

#[inline(always)]
fn add_multiple<S: Simd, const N: usize>(
    simd: S,
    weight: f32,
    value: &[S::f32s],
    sums: &mut [S::f32s; N],
) {
    let weight = simd.splat_f32s(weight);
    for (sum, value) in sums.iter_mut().zip(value) {
        *sum = simd.mul_add_f32s(weight, *value, *sum);
    }
}
