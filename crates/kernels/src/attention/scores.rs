//! Shared by the forward and backward passes: packed operands, tiles of products, masking and scaling of scores.

use std::cmp::Ordering;
use std::ops::Range;

use pulp::Simd;

use super::key_ranges::KeyRanges;
use super::{AttentionDropout, Heads, Options, PANEL, QUERY_BLOCK, Shape};
use crate::microkernel::{self, GemmTile, Init, TileSize, View};
use crate::pack::PackPanels;
use crate::simd::{self, interleave};

/// Whether a product reads the rows of a head in place: they need no padding, and are contiguous or too few to pay for a copy.
pub(super) fn is_read_in_place(heads: Heads, rows: usize, width: usize, tile: TileSize) -> bool {
    tile.padded(width) == width && (heads.strides.row == width || rows <= 2 * QUERY_BLOCK)
}

/// The rows of a head, padded to whole tiles: in place where possible, otherwise copied to `out` and padded with zeros. The
/// view is valid as long as both slices are.
#[inline(always)]
pub(super) fn padded_rows<S: Simd>(
    heads: Heads,
    [batch, head]: [usize; 2],
    rows: usize,
    width: usize,
    out: &mut [f32],
) -> View {
    let tile = microkernel::tile_size::<S>();
    if rows > 0 && is_read_in_place(heads, rows, width, tile) {
        // Checks that the last row lies in the slice.
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
        "attention: a buffer of {} is too short for {rows} rows of {padded}",
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

/// Copies a row vector by vector: rows are short, and a call to memcpy would take longer than the copy.
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

/// Packs the rows of a head as columns of panels: `[panel][width][columns of a panel]`, the last panel padded with zeros.
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
    // Checks that the last row lies in the slice.
    heads.row(batch, head, rows - 1, width);
    let matrix = PackPanels {
        view: View {
            start: heads.row(batch, head, 0, width).as_ptr(),
            row_stride: 1,
            column_stride: heads.strides.row,
        },
        rows: width,
        width: rows,
        panel: microkernel::nr::<S>(),
        out,
    };
    // SAFETY: all rows lie in the slice; the view transposes them.
    unsafe { matrix.run_with(simd) };
}

/// `C = A · B` with a packed B. Tiles outside the key ranges are left unwritten.
pub(super) struct PanelProduct<'a> {
    pub rows: usize,
    /// Columns from the start of a panel.
    pub columns: usize,
    pub depth: usize,
    pub a: View,
    pub b: &'a [f32],
    pub c: &'a mut [f32],
    /// Stride between rows of C.
    pub c_stride: usize,
    pub key_ranges: &'a KeyRanges,
}

impl PanelProduct<'_> {
    /// Computes the product.
    ///
    /// # Safety
    /// `a` must be readable for `rows` by `depth`, `b` must hold whole panels of `depth` for `columns`, and `c` must be
    /// writable for `rows` rows of whole panels.
    #[inline(always)]
    pub unsafe fn run<S: Simd>(self, simd: S) {
        let panel = microkernel::nr::<S>();
        // Rows of scores have room for whole panels of every instruction set.
        const { assert!(PANEL.is_multiple_of(microkernel::nr::<S>())) };
        for column in (0..self.columns).step_by(panel) {
            let b = self.b[column * self.depth..].as_ptr();
            for row in (0..self.rows).step_by(microkernel::MR) {
                let needed = self.key_ranges.at(row);
                if needed.start >= column + panel || needed.end <= column {
                    continue;
                }
                // SAFETY: guaranteed by the caller; the slice checks that the tile starts inside C.
                unsafe {
                    let tile = GemmTile {
                        rows: microkernel::MR.min(self.rows - row),
                        width: microkernel::tile_width::<S>(needed.end - column),
                        depth: self.depth,
                        a: self.a.skip_rows(row),
                        b,
                        b_stride: panel,
                        c: self.c[row * self.c_stride + column..].as_mut_ptr(),
                        c_stride: self.c_stride,
                        init: Init::Zero,
                        prefetch: None,
                    };
                    tile.run(simd);
                }
            }
        }
    }
}

/// The raw scores of a block of queries and a tile of packed keys.
pub(super) struct PackedScores<'a> {
    pub shape: &'a Shape,
    pub query: Heads<'a>,
    pub batch: usize,
    pub head: usize,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    /// All keys of the head, as by [`pack_columns`].
    pub packed_keys: &'a [f32],
    /// Rows of [`Shape::score_stride`].
    pub scores: &'a mut [f32],
    pub key_ranges: &'a KeyRanges,
}

impl PackedScores<'_> {
    /// Computes the scores.
    ///
    /// # Panics
    /// When the tile does not lie in the packed keys, or the scores have no room for it.
    #[inline(always)]
    pub fn run<S: Simd>(self, simd: S) {
        let (width, queries) = (self.shape.head_width, self.queries);
        let stride = self.shape.score_stride();
        let whole_panels = self.keys.len().next_multiple_of(microkernel::nr::<S>());
        assert!(
            self.packed_keys.len() >= (self.keys.start + whole_panels) * width,
            "attention: the packed keys end before the last panel of the tile"
        );
        assert!(
            whole_panels <= stride && self.scores.len() >= queries.len() * stride,
            "attention: no room for the scores of a tile"
        );
        let row = |query| self.query.row(self.batch, self.head, query, width);
        let a = View {
            start: row(queries.start).as_ptr(),
            row_stride: self.query.strides.row,
            column_stride: 1,
        };
        // Checks that the block's last row lies in the slice.
        row(queries.end - 1);
        let product = PanelProduct {
            rows: queries.len(),
            columns: self.keys.len(),
            depth: width,
            a,
            b: &self.packed_keys[self.keys.start * width..],
            c: self.scores,
            c_stride: stride,
            key_ranges: self.key_ranges,
        };
        // SAFETY: the block's queries lie in their slice; the panels of the tile, and room for their scores, were checked above.
        unsafe { product.run(simd) };
    }
}

/// `C += A · B`; A is read only in its `key_ranges`, as it is zero elsewhere.
pub(super) struct AddProduct<'a> {
    pub rows: usize,
    pub depth: usize,
    pub a: View,
    /// Contiguous columns.
    pub b: View,
    pub c: &'a mut [f32],
    /// The length of a row of C, padded to whole tiles.
    pub padded_width: usize,
    pub key_ranges: &'a KeyRanges,
}

impl AddProduct<'_> {
    /// Accumulates the product.
    ///
    /// # Safety
    /// `a` must be readable for `rows` by `depth`, and `b` for `depth` by `padded_width`.
    #[inline(always)]
    pub unsafe fn run<S: Simd>(self, simd: S) {
        let (panel, padded_width) = (microkernel::nr::<S>(), self.padded_width);
        assert!(self.c.len() >= self.rows * padded_width);
        for column in (0..padded_width).step_by(panel) {
            for row in (0..self.rows).step_by(microkernel::MR) {
                let needed = self.key_ranges.at(row);
                let (first, needed) = (needed.start, needed.end.min(self.depth));
                if first >= needed {
                    continue;
                }
                // SAFETY: the caller guarantees `a` and `b`; `c` was checked above to hold whole padded rows.
                unsafe {
                    let start = self.a.at(row, first);
                    let tile = GemmTile {
                        rows: microkernel::MR.min(self.rows - row),
                        width: panel.min(padded_width - column),
                        depth: needed - first,
                        a: View { start, ..self.a },
                        b: self.b.at(first, column),
                        b_stride: self.b.row_stride,
                        c: self.c.as_mut_ptr().add(row * padded_width + column),
                        c_stride: padded_width,
                        init: Init::Accumulate,
                        prefetch: None,
                    };
                    tile.run(simd);
                }
            }
        }
    }
}

/// The smallest range with all keys that a block of queries sees.
pub(super) fn union_of_visible_keys(
    options: &Options,
    shape: &Shape,
    batch: usize,
    queries: Range<usize>,
) -> Range<usize> {
    // Both ends of the visible range are monotonic in the query, except where it is empty.
    if !queries.is_empty() {
        let ends = [queries.start, queries.end - 1];
        let [first, last] = ends.map(|query| options.mask.visible_keys(shape, batch, query));
        if !first.is_empty() && !last.is_empty() {
            return first.start..last.end;
        }
    }
    let (mut start, mut end) = (usize::MAX, 0);
    for query in queries {
        let range = options.mask.visible_keys(shape, batch, query);
        if !range.is_empty() {
            start = start.min(range.start);
            end = end.max(range.end);
        }
    }
    start.min(end)..end
}

/// The keys of a tile that a query sees, relative to the start of the tile, and the whole vectors around them.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleSpan {
    pub from: usize,
    pub to: usize,
    start: usize,
    end: usize,
}

impl VisibleSpan {
    /// The part of `visible` in the tile of `count` keys from `tile` on.
    #[inline(always)]
    pub fn new<S: Simd>(visible: Range<usize>, tile: usize, count: usize) -> Self {
        let from = visible.start.clamp(tile, tile + count) - tile;
        let to = visible.end.clamp(tile, tile + count) - tile;
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

    /// Fills the lanes that the query does not see, so that loops need no remainder.
    #[inline(always)]
    pub fn fill_edges(&self, scores_row: &mut [f32], value: f32) {
        scores_row[self.start..self.from].fill(value);
        scores_row[self.to..self.end].fill(value);
    }

    /// Zeroes the row outside the whole vectors.
    #[inline(always)]
    pub fn zero_outside(&self, scores_row: &mut [f32], count: usize) {
        if self.start > 0 {
            scores_row[..self.start].fill(0.0);
        }
        if self.end < count {
            scores_row[self.end..count].fill(0.0);
        }
    }

    /// The whole vectors around the visible keys.
    #[inline(always)]
    pub fn vectors<'l, S: Simd>(&self, scores_row: &'l mut [f32]) -> &'l mut [S::f32s] {
        S::as_mut_simd_f32s(&mut scores_row[self.start..self.end]).0
    }
}

/// Masks a row of raw scores with minus infinity, and adds the bias. Returns the factor that they still have to be
/// multiplied by: the scale, or one if they were scaled here.
#[inline(always)]
pub(super) fn scale_and_mask(
    scores_row: &mut [f32],
    span: &VisibleSpan,
    options: &Options,
    shape: &Shape,
    at: [usize; 3],
    tile: usize,
) -> f32 {
    // A scale that is not positive would not preserve minus infinity, so it is applied before masking.
    let scales_first =
        options.bias.is_some() || options.scale.partial_cmp(&0.0) != Some(Ordering::Greater);
    if scales_first {
        let inside = &mut scores_row[span.from..span.to];
        scale_and_bias(inside, options, shape, at, tile + span.from);
    }
    span.fill_edges(scores_row, f32::NEG_INFINITY);
    if scales_first { 1.0 } else { options.scale }
}

/// `scores · scale + bias` in a row of scores, for the keys `from..`.
#[inline(always)]
pub(super) fn scale_and_bias(
    scores: &mut [f32],
    options: &Options,
    shape: &Shape,
    at: [usize; 3],
    from: usize,
) {
    match options.bias {
        None => scores.iter_mut().for_each(|score| *score *= options.scale),
        Some(bias) => {
            let biases = bias.row(shape, at, from, scores.len());
            for (score, bias) in scores.iter_mut().zip(biases) {
                *score = *score * options.scale + bias;
            }
        }
    }
}

/// `exp(score · factor + shift)` of several vectors.
#[inline(always)]
pub(super) fn exp_scaled<S: Simd, const N: usize>(
    simd: S,
    scores: [S::f32s; N],
    factor: S::f32s,
    shift: S::f32s,
) -> [S::f32s; N] {
    let exponents = interleave!(simd, N, |i| simd.mul_add_f32s(scores[i], factor, shift));
    simd::exp_nonpositives(simd, exponents)
}

/// The dropout factors of a row's weights for the keys `from..`; none without dropout. `row` is the row's index in
/// `[batch, heads, queries]`.
#[inline(always)]
pub(super) fn dropout_factors<'f, S: Simd>(
    simd: S,
    options: &Options,
    shape: &Shape,
    row: usize,
    from: usize,
    factors: &'f mut [f32],
) -> Option<&'f [f32]> {
    let AttentionDropout { dropout, key } = options.dropout?;
    let start = row as u64 * shape.keys as u64 + from as u64;
    dropout.factors(simd, key, start, factors);
    Some(factors)
}
