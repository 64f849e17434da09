//! What forward and backward share: packed operands, tiles of products, and the weights of a block.

use std::cmp::Ordering;
use std::ops::Range;

use pulp::Simd;

use super::reach::Reach;
use super::{Heads, Options, PANEL, QUERIES, Shape, WeightDropout};
use crate::micro::{self, Onto, TileSize, View};
use crate::pack::pack_panels_with;
use crate::simd::{self, abreast};

/// Whether a product reads rows of a head where they stand: they are whole tiles, and so close or so few that copies of them
/// would not be read often enough.
pub(super) fn in_place(heads: Heads, rows: usize, width: usize, tile: TileSize) -> bool {
    tile.padded(width) == width && (heads.strides.row == width || rows <= 2 * QUERIES)
}

/// Rows of a head in whole tiles: where they stand, or else copied to `out` without gaps and padded with zeros. They are
/// readable as long as both are.
#[inline(always)]
pub(super) fn whole_rows<S: Simd>(
    heads: Heads,
    [batch, head]: [usize; 2],
    rows: usize,
    width: usize,
    out: &mut [f32],
) -> View {
    let tile = micro::size::<S>();
    if rows > 0 && in_place(heads, rows, width, tile) {
        // This checks that the last row lies in the slice.
        heads.row(batch, head, rows - 1, width);
        return View {
            start: heads.row(batch, head, 0, width).as_ptr(),
            row_stride: heads.strides.row,
            column_stride: 1,
        };
    }
    let padded = tile.padded(width);
    assert!(
        out.len() >= rows * padded,
        "attention: {} numbers have no room for {rows} rows of {padded}",
        out.len()
    );
    for (row, out) in out.chunks_exact_mut(padded).enumerate().take(rows) {
        let row = heads.row(batch, head, row, width);
        copy_row::<S>(row, &mut out[..width]);
        if width < padded {
            out[width..].fill(0.0);
        }
    }
    View {
        start: out.as_ptr(),
        row_stride: padded,
        column_stride: 1,
    }
}

/// Copies a row, vector by vector: rows are short, and a call for each would take longer than the copy.
#[inline(always)]
pub(super) fn copy_row<S: Simd>(from: &[f32], to: &mut [f32]) {
    let (vectors, rest) = S::as_simd_f32s(from);
    let (to, to_rest) = S::as_mut_simd_f32s(to);
    for (to, from) in to.iter_mut().zip(vectors) {
        *to = *from;
    }
    for (to, from) in to_rest.iter_mut().zip(rest) {
        *to = *from;
    }
}

/// Rows of a head as columns of panels: `[panel][width][columns of a panel]`, the last panel filled up with zeros.
#[inline(always)]
pub(super) fn pack_columns<S: Simd>(
    simd: S,
    heads: Heads,
    batch: usize,
    head: usize,
    rows: usize,
    width: usize,
    out: &mut [f32],
) {
    if rows == 0 || width == 0 {
        return;
    }
    // This checks that the last row lies in the slice.
    heads.row(batch, head, rows - 1, width);
    let view = View {
        start: heads.row(batch, head, 0, width).as_ptr(),
        row_stride: 1,
        column_stride: heads.strides.row,
    };
    // SAFETY: all rows lie in the slice, seen here as columns.
    unsafe { pack_panels_with(simd, view, width, rows, micro::columns::<S>(), out) };
}

/// `C = A · B` with a panelled B: `columns` of them, the first of a panel; tiles that nobody needs are left as they are.
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
    reach: &Reach,
) {
    let panel = micro::columns::<S>();
    // Rows of scores have room for whole panels of every kind.
    const { assert!(PANEL.is_multiple_of(micro::columns::<S>())) };
    for column in (0..columns).step_by(panel) {
        let b = b[column * depth..].as_ptr();
        for row in (0..rows).step_by(micro::ROWS) {
            let needed = reach.at(row);
            if needed.start >= column + panel || needed.end <= column {
                continue;
            }
            let width = micro::width::<S>(needed.end - column);
            // SAFETY: the caller's promise; the slice checks that the tile starts inside C.
            unsafe {
                let start = a.at(row, 0);
                micro::tile(
                    simd,
                    micro::ROWS.min(rows - row),
                    width,
                    depth,
                    View { start, ..a },
                    b,
                    panel,
                    c[row * c_stride + column..].as_mut_ptr(),
                    c_stride,
                    Onto::Replace,
                    None,
                );
            }
        }
    }
}

/// The raw scores of a block of queries with a tile of packed keys, in rows of [`Shape::line`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) fn score_packed<S: Simd>(
    simd: S,
    shape: &Shape,
    query: Heads,
    [batch, head]: [usize; 2],
    block: Range<usize>,
    tile: Range<usize>,
    packed_keys: &[f32],
    scores: &mut [f32],
    reach: &Reach,
) {
    let width = shape.head_width;
    let a = View {
        start: query.row(batch, head, block.start, width).as_ptr(),
        row_stride: query.strides.row,
        column_stride: 1,
    };
    // The view reaches to the block's last row, which this checks.
    query.row(batch, head, block.end - 1, width);
    let panels = &packed_keys[tile.start * width..];
    let (rows, columns, line) = (block.len(), tile.len(), shape.line());
    // SAFETY: the block's queries lie in their slice, the panels of this tile are packed, and the scores have room for
    // whole panels.
    unsafe { product_with_panels(simd, rows, columns, width, a, panels, scores, line, reach) };
}

/// `C += A · B` with rows of C padded to whole tiles; of A's rows only what is in `reach`, the rest being zeros.
///
/// # Safety
/// `a` must be readable for `rows` by `depth`, and `b`, whose columns are neighbours, for `depth` by `padded`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn add_product<S: Simd>(
    simd: S,
    rows: usize,
    depth: usize,
    a: View,
    b: View,
    c: &mut [f32],
    padded: usize,
    reach: &Reach,
) {
    let panel = micro::columns::<S>();
    assert!(c.len() >= rows * padded);
    for column in (0..padded).step_by(panel) {
        let width = panel.min(padded - column);
        for row in (0..rows).step_by(micro::ROWS) {
            let needed = reach.at(row);
            let (first, needed) = (needed.start, needed.end.min(depth));
            if first >= needed {
                continue;
            }
            // SAFETY: the caller's promise for `a` and `b`; `c` was checked above to hold whole padded rows.
            unsafe {
                let start = a.at(row, first);
                micro::tile(
                    simd,
                    micro::ROWS.min(rows - row),
                    width,
                    needed - first,
                    View { start, ..a },
                    b.at(first, column),
                    b.row_stride,
                    c.as_mut_ptr().add(row * padded + column),
                    padded,
                    Onto::Add,
                    None,
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
    // Both ends of what is seen only move forward, but who sees nothing may have them anywhere.
    if !queries.is_empty() {
        let ends = [queries.start, queries.end - 1];
        let [first, last] = ends.map(|query| options.mask.range(shape, batch, query));
        if !first.is_empty() && !last.is_empty() {
            return first.start..last.end;
        }
    }
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

/// The keys of a tile that a query sees, counted from the tile's first, and the whole vectors around them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub from: usize,
    pub to: usize,
    start: usize,
    end: usize,
}

impl Seen {
    /// Of the keys `range`, those in the tile of `count` keys from `tile` on.
    #[inline(always)]
    pub fn new<S: Simd>(range: Range<usize>, tile: usize, count: usize) -> Self {
        let from = range.start.clamp(tile, tile + count) - tile;
        let to = range.end.clamp(tile, tile + count) - tile;
        Self {
            from,
            to,
            start: from / S::F32_LANES * S::F32_LANES,
            end: to.next_multiple_of(S::F32_LANES),
        }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    /// Fills the vectors' numbers that the query does not see, so that no loop has to think of ends.
    #[inline(always)]
    pub fn fill_vectors(&self, line: &mut [f32], value: f32) {
        line[self.start..self.from].fill(value);
        line[self.to..self.end].fill(value);
    }

    /// Zeroes the row outside the vectors.
    #[inline(always)]
    pub fn clear_rest(&self, line: &mut [f32], count: usize) {
        if self.start > 0 {
            line[..self.start].fill(0.0);
        }
        if self.end < count {
            line[self.end..count].fill(0.0);
        }
    }

    /// The vectors.
    #[inline(always)]
    pub fn vectors<'l, S: Simd>(&self, line: &'l mut [f32]) -> &'l mut [S::f32s] {
        S::as_mut_simd_f32s(&mut line[self.start..self.end]).0
    }
}

/// Prepares a row of raw scores for the exponential: minus infinity where the vectors hold keys that are not seen. Gives
/// the factor that is left to multiply with.
#[inline(always)]
pub(super) fn prepare_row(
    line: &mut [f32],
    seen: &Seen,
    options: &Options,
    shape: &Shape,
    at: [usize; 3],
    tile: usize,
) -> f32 {
    // A factor that is not positive would turn minus infinity into something else, so it is applied first.
    let now = options.bias.is_some() || options.scale.partial_cmp(&0.0) != Some(Ordering::Greater);
    if now {
        let inside = &mut line[seen.from..seen.to];
        scale_row(inside, options, shape, at, tile + seen.from);
    }
    seen.fill_vectors(line, f32::NEG_INFINITY);
    if now { 1.0 } else { options.scale }
}

/// A row of scores, scaled and with its bias: `scores · scale + bias`, for the keys `from..`.
#[inline(always)]
pub(super) fn scale_row(
    scores: &mut [f32],
    options: &Options,
    shape: &Shape,
    at: [usize; 3],
    from: usize,
) {
    match options.bias {
        None => scores.iter_mut().for_each(|score| *score *= options.scale),
        Some(bias) => {
            let added = bias.row(shape, at, from, scores.len());
            for (score, added) in scores.iter_mut().zip(added) {
                *score = *score * options.scale + added;
            }
        }
    }
}

/// `e^(score · factor + shift)` of several vectors of scores.
#[inline(always)]
pub(super) fn powers<S: Simd, const N: usize>(
    simd: S,
    scores: [S::f32s; N],
    factor: S::f32s,
    shift: S::f32s,
) -> [S::f32s; N] {
    let below = abreast!(simd, N, |i| simd.mul_add_f32s(scores[i], factor, shift));
    simd::decays(simd, below)
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
