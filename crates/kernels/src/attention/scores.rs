//! What forward and backward share: packed operands, tiles of products, and the weights of a block.

use std::ops::Range;

use pulp::Simd;

use super::{Heads, Options, Shape, WeightDropout};
use crate::micro::{self, Onto, View};

/// Rows of a head copied without gaps, each padded with zeros to whole panels.
pub(super) fn pack_rows<S: Simd>(
    heads: Heads,
    batch: usize,
    head: usize,
    rows: usize,
    width: usize,
    out: &mut [f32],
) {
    let padded = width.next_multiple_of(micro::columns::<S>());
    for (row, out) in out.chunks_exact_mut(padded).enumerate().take(rows) {
        out[..width].copy_from_slice(heads.row(batch, head, row, width));
        out[width..].fill(0.0);
    }
}

/// Rows of a head as columns of panels: `[panel][width][columns of a panel]`, the last panel filled up with zeros.
pub(super) fn pack_columns<S: Simd>(
    heads: Heads,
    batch: usize,
    head: usize,
    rows: usize,
    width: usize,
    out: &mut [f32],
) {
    let panel = micro::columns::<S>();
    for (index, out) in out.chunks_exact_mut(width * panel).enumerate() {
        let first = index * panel;
        if first >= rows {
            break;
        }
        for column in 0..panel {
            if first + column < rows {
                let row = heads.row(batch, head, first + column, width);
                for (depth, value) in row.iter().enumerate() {
                    out[depth * panel + column] = *value;
                }
            } else {
                out.iter_mut()
                    .skip(column)
                    .step_by(panel)
                    .for_each(|it| *it = 0.0);
            }
        }
    }
}

/// `C (+)= A · B` with a panelled B: `columns` of them, the first of a panel.
///
/// # Safety
/// `a` must be readable for `rows` by `depth`, `b` must hold whole panels of `depth` for `columns`, and `c` must be
/// writable for `rows` rows of whole panels, `c_stride` apart.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn product_with_panels<S: Simd>(
    simd: S,
    rows: usize,
    columns: usize,
    depth: usize,
    a: View,
    b: &[f32],
    c: &mut [f32],
    c_stride: usize,
) {
    let panel = micro::columns::<S>();
    for column in (0..columns).step_by(panel) {
        let b = b[column * depth..].as_ptr();
        for row in (0..rows).step_by(micro::ROWS) {
            // SAFETY: the caller's promise; the slice checks that the tile starts inside C.
            unsafe {
                let start = a.at(row, 0);
                micro::tile(
                    simd,
                    micro::ROWS.min(rows - row),
                    panel,
                    depth,
                    View { start, ..a },
                    b,
                    panel,
                    c[row * c_stride + column..].as_mut_ptr(),
                    c_stride,
                    Onto::Replace,
                );
            }
        }
    }
}

/// `C += A · B` with B in padded rows, as wide as C's.
///
/// # Safety
/// `a` must be readable for `rows` by `depth`.
#[inline(always)]
pub(super) unsafe fn add_product<S: Simd>(
    simd: S,
    rows: usize,
    depth: usize,
    a: View,
    b: &[f32],
    c: &mut [f32],
    padded: usize,
) {
    let panel = micro::columns::<S>();
    assert!(b.len() >= depth * padded && c.len() >= rows * padded);
    for column in (0..padded).step_by(panel) {
        for row in (0..rows).step_by(micro::ROWS) {
            // SAFETY: the caller's promise for `a`; `b` and `c` were checked above to hold whole padded rows.
            unsafe {
                let start = a.at(row, 0);
                micro::tile(
                    simd,
                    micro::ROWS.min(rows - row),
                    panel,
                    depth,
                    View { start, ..a },
                    b.as_ptr().add(column),
                    padded,
                    c.as_mut_ptr().add(row * padded + column),
                    padded,
                    Onto::Add,
                );
            }
        }
    }
}

/// The keys that a block of queries sees between them.
pub(super) fn union(
    options: &Options,
    shape: &Shape,
    batch: usize,
    queries: Range<usize>,
) -> Range<usize> {
    let (mut start, mut end) = (usize::MAX, 0);
    for query in queries {
        let range = options.mask.range(shape, batch, query);
        if !range.is_empty() {
            start = start.min(range.start);
            end = end.max(range.end);
        }
    }
    start.min(end)..end
}

/// A row of scores, scaled and with its bias: `scores · scale + bias`, for the keys `from..`.
#[inline(always)]
pub(super) fn scale_row(
    scores: &mut [f32],
    options: &Options,
    shape: &Shape,
    [batch, head, query]: [usize; 3],
    from: usize,
) {
    match options.bias {
        None => scores.iter_mut().for_each(|score| *score *= options.scale),
        Some(bias) => {
            let start =
                batch * bias.batch_stride + head * bias.head_stride + query * shape.keys + from;
            let added = &bias.data[start..start + scores.len()];
            for (score, added) in scores.iter_mut().zip(added) {
                *score = *score * options.scale + added;
            }
        }
    }
}

/// What dropout multiplies the weights of a row (numbered among all rows) with, for the keys `from..`; nothing without
/// dropout.
#[inline(always)]
pub(super) fn dropout_factors<'f, S: Simd>(
    simd: S,
    options: &Options,
    shape: &Shape,
    row: usize,
    from: usize,
    factors: &'f mut [f32],
) -> Option<&'f [f32]> {
    let WeightDropout { dropout, key } = options.dropout?;
    let start = row as u64 * shape.keys as u64 + from as u64;
    dropout.factors(simd, key, start, factors);
    Some(factors)
}
