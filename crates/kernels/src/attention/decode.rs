//! Attention of a few queries, as in decoding from a KV cache: keys and values are read in place, since packing them would cost
//! more than it saves.

use std::ops::Range;

use pulp::Simd;

use super::Heads;
use crate::linear::{self, PREFETCH_DISTANCE};
use crate::simd;

/// With more queries than this, keys and values are packed.
pub(super) const DECODE_MAX_QUERIES: usize = 4;

/// The key or value rows of one head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct KvRows<'a> {
    pub heads: Heads<'a>,
    pub batch: usize,
    pub head: usize,
    pub width: usize,
}

impl<'a> KvRows<'a> {
    #[inline(always)]
    fn row(&self, row: usize) -> &'a [f32] {
        self.heads.row(self.batch, self.head, row, self.width)
    }
}

/// Distant rows read at the same time: several memory streams have more bandwidth than one.
const STREAMS: usize = 4;

/// The dot products of a query with a range of keys.
#[inline(always)]
pub(super) fn dots<S: Simd>(
    simd: S,
    query: &[f32],
    keys: KvRows,
    range: Range<usize>,
    out: &mut [f32],
) {
    // Each stream needs registers for its sums.
    let per_stream = match S::REGISTER_COUNT {
        0..32 => 0,
        _ => range.len() / STREAMS,
    };
    for step in 0..per_stream {
        let mut rows: [&[f32]; STREAMS] = [&[]; STREAMS];
        for (stream, row) in rows.iter_mut().enumerate() {
            *row = keys.row(range.start + stream * per_stream + step);
        }
        let results = linear::dots::<S, STREAMS, true>(simd, query, rows);
        for (stream, result) in results.into_iter().enumerate() {
            out[stream * per_stream + step] = result;
        }
    }
    let rest = STREAMS * per_stream..range.len();
    for (out, key) in out[rest.clone()].iter_mut().zip(range.start + rest.start..) {
        *out = linear::dot(simd, query, keys.row(key));
    }
}

/// Accumulates the weighted values from `first` on.
#[inline(always)]
pub(super) fn add_weighted<S: Simd>(
    simd: S,
    weights: &[f32],
    values: KvRows,
    first: usize,
    accumulator: &mut [f32],
) {
    let accumulator = &mut accumulator[..values.width];
    let (vectors, rest) = S::as_mut_simd_f32s(accumulator);
    let vectorized = vectors.len() * S::F32_LANES;
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
            _ => add_block::<S, 4, STREAMS>(simd, weights, values, first, from, block),
        }
        from += block.len();
    }
    for vector in singles {
        let block = std::array::from_mut(vector);
        add_block::<S, 1, STREAMS>(simd, weights, values, first, from, block);
        from += block.len();
    }
    if rest.is_empty() {
        return;
    }
    for (weight, key) in weights.iter().zip(first..) {
        for (sum, value) in rest.iter_mut().zip(&values.row(key)[vectorized..]) {
            *sum += weight * value;
        }
    }
}

/// Accumulates the vectors `from..from + N` of the values, in `P` memory streams.
#[inline(always)]
fn add_block<S: Simd, const N: usize, const P: usize>(
    simd: S,
    weights: &[f32],
    values: KvRows,
    first: usize,
    from: usize,
    block: &mut [S::f32s; N],
) {
    let per_stream = weights.len() / P;
    let mut sums = [[simd.splat_f32s(0.0); N]; P];
    for step in 0..per_stream {
        for (stream, sums) in sums.iter_mut().enumerate() {
            let index = stream * per_stream + step;
            let value = &S::as_simd_f32s(values.row(first + index)).0[from..from + N];
            let next = value
                .as_ptr()
                .cast::<f32>()
                .wrapping_add(PREFETCH_DISTANCE / P);
            simd::prefetch_l2(next, N * S::F32_LANES);
            add_multiple(simd, weights[index], value, sums);
        }
    }
    for (weight, key) in weights[P * per_stream..]
        .iter()
        .zip(first + P * per_stream..)
    {
        let value = &S::as_simd_f32s(values.row(key)).0[from..from + N];
        add_multiple(simd, *weight, value, &mut sums[0]);
    }
    for i in 0..N {
        for sums in &sums {
            block[i] = simd.add_f32s(block[i], sums[i]);
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
