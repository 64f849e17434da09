//! The products of a chunk, whole or in the lower triangle of causal attention, with operands packed in panels.

use std::ops::Range;

use pulp::Simd;

use super::{CHUNK, Chunk, HeadRows, OutputHeads};
use crate::microkernel::{self, GemmTile, Init, View};
use crate::pack::PackPanels;

/// A right-hand side packed in panels of columns.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub data: &'a [f32],
    /// Rows of a panel.
    pub depth: usize,
}

impl Panels<'_> {
    /// Row `from` of the panel that begins at `column`.
    #[inline(always)]
    fn at<S: Simd>(&self, column: usize, from: usize) -> *const f32 {
        let panel = microkernel::nr::<S>();
        let start = column * self.depth;
        // Checks that the panel is in the slice.
        self.data[start..start + self.depth * panel][from * panel..].as_ptr()
    }
}

/// A left-hand side, and the stride of its tiles of rows.
#[derive(Clone, Copy)]
pub(super) struct Lhs {
    pub view: View,
    pub tile_step: usize,
}

impl Lhs {
    /// Strided rows, not packed.
    #[inline(always)]
    pub fn rows(view: View) -> Self {
        Self {
            view,
            tile_step: microkernel::MR * view.row_stride,
        }
    }

    /// Packed panels of [`microkernel::MR`] rows of this depth.
    #[inline(always)]
    pub fn packed(data: &[f32], depth: usize) -> Self {
        Self {
            view: View {
                start: data.as_ptr(),
                row_stride: 1,
                column_stride: microkernel::MR,
            },
            tile_step: microkernel::MR * depth,
        }
    }

    #[inline(always)]
    fn tile(self, first_row: usize) -> View {
        View {
            start: self
                .view
                .start
                .wrapping_add(first_row / microkernel::MR * self.tile_step),
            ..self.view
        }
    }
}

/// An output matrix, padded to whole panels.
pub(super) struct Accumulator<'a> {
    pub data: &'a mut [f32],
    /// Stride between rows.
    pub stride: usize,
    /// Stride between panels of columns.
    pub panel_step: usize,
}

impl<'a> Accumulator<'a> {
    /// Rows of `width`, padded to whole panels.
    #[inline(always)]
    pub fn rows<S: Simd>(data: &'a mut [f32], width: usize) -> Self {
        let panel = microkernel::nr::<S>();
        Self {
            data,
            stride: width.next_multiple_of(panel),
            panel_step: panel,
        }
    }

    /// Panels of columns with `rows` rows each.
    #[inline(always)]
    pub fn panels<S: Simd>(data: &'a mut [f32], rows: usize) -> Self {
        let panel = microkernel::nr::<S>();
        Self {
            data,
            stride: panel,
            panel_step: rows * panel,
        }
    }

    /// Address of a tile, after checking that it lies in the slice.
    #[inline(always)]
    fn at<S: Simd>(&mut self, row: usize, rows: usize, column: usize) -> *mut f32 {
        let panel = microkernel::nr::<S>();
        let start = row * self.stride + column / panel * self.panel_step;
        self.data[start..start + (rows - 1) * self.stride + panel].as_mut_ptr()
    }
}

/// `C (+)= A · B`.
///
/// # Safety
/// `a` must be readable for `rows` by the depth of `b`.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(
    simd: S,
    [rows, columns]: [usize; 2],
    a: Lhs,
    b: Panels,
    c: &mut Accumulator,
    init: Init,
) {
    let panel = microkernel::nr::<S>();
    for column in (0..columns).step_by(panel) {
        let width = microkernel::tile_width::<S>(columns - column);
        for row in (0..rows).step_by(microkernel::MR) {
            let count = microkernel::MR.min(rows - row);
            let tile = GemmTile {
                rows: count,
                width,
                depth: b.depth,
                a: a.tile(row),
                b: b.at::<S>(column, 0),
                b_stride: panel,
                c: c.at::<S>(row, count, column),
                c_stride: c.stride,
                init,
                prefetch: None,
            };
            // SAFETY: the caller guarantees `a`; panels and accumulator check theirs.
            unsafe { tile.run(simd) };
        }
    }
}

/// The causal triangle of a chunk: of `keys` keys, query `i` of `rows` sees the first `i + 1 - shift`. Scores are in rows of
/// [`Triangle::stride`].
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub rows: usize,
    pub keys: usize,
    pub shift: usize,
}

impl Triangle {
    /// The triangle of a chunk.
    #[inline(always)]
    pub fn of(chunk: &Chunk) -> Self {
        Self {
            rows: chunk.queries.len(),
            keys: chunk.keys.len(),
            shift: chunk.shift,
        }
    }

    /// The length of a row of scores: whole panels.
    #[inline(always)]
    pub const fn stride<S: Simd>() -> usize {
        CHUNK.next_multiple_of(microkernel::nr::<S>())
    }

    /// The number of keys visible to a row.
    #[inline(always)]
    pub fn visible_keys(&self, row: usize) -> usize {
        (row + 1).saturating_sub(self.shift).min(self.keys)
    }

    /// `C = A · B` where a query sees a key, and zeros where it does not.
    ///
    /// # Safety
    /// `a` must be readable for `rows` by the depth of `b`.
    #[inline(always)]
    pub unsafe fn scores<S: Simd>(&self, simd: S, a: Lhs, b: Panels, c: &mut [f32]) {
        let (panel, stride) = (microkernel::nr::<S>(), Self::stride::<S>());
        for column in (0..self.keys).step_by(panel) {
            // The microkernel tile of the first row that sees a key of the panel.
            let first = (column + self.shift) / microkernel::MR * microkernel::MR;
            let width = microkernel::tile_width::<S>(self.keys - column);
            for row in (first..self.rows).step_by(microkernel::MR) {
                let count = microkernel::MR.min(self.rows - row);
                let start = row * stride + column;
                let c = &mut c[start..start + (count - 1) * stride + panel];
                let tile = GemmTile {
                    rows: count,
                    width,
                    depth: b.depth,
                    a: a.tile(row),
                    b: b.at::<S>(column, 0),
                    b_stride: panel,
                    c: c.as_mut_ptr(),
                    c_stride: stride,
                    init: Init::Zero,
                    prefetch: None,
                };
                // SAFETY: the caller guarantees `a`; the panels check theirs, and the slice is as long as the tile.
                unsafe { tile.run(simd) };
            }
        }
        for row in 0..self.rows {
            c[row * stride + self.visible_keys(row)..row * stride + self.keys].fill(0.0);
        }
    }

    /// `C += A · B`, where A is the result of [`Self::scores`], queries by keys.
    #[inline(always)]
    pub fn accumulate<S: Simd>(
        &self,
        simd: S,
        a: &[f32],
        b: Panels,
        columns: usize,
        c: &mut Accumulator,
    ) {
        let (panel, stride) = (microkernel::nr::<S>(), Self::stride::<S>());
        assert!(self.keys <= b.depth && a.len() >= self.rows * stride && stride >= self.keys);
        for column in (0..columns).step_by(panel) {
            let width = microkernel::tile_width::<S>(columns - column);
            for row in (0..self.rows).step_by(microkernel::MR) {
                let count = microkernel::MR.min(self.rows - row);
                let depth = self.visible_keys(row + count - 1);
                if depth == 0 {
                    continue;
                }
                let tile = GemmTile {
                    rows: count,
                    width,
                    depth,
                    a: contiguous(&a[row * stride..], stride),
                    b: b.at::<S>(column, 0),
                    b_stride: panel,
                    c: c.at::<S>(row, count, column),
                    c_stride: c.stride,
                    init: Init::Accumulate,
                    prefetch: None,
                };
                // SAFETY: `a` was checked above to have all rows and columns; panels and accumulator check theirs.
                unsafe { tile.run(simd) };
            }
        }
    }

    /// `C += Aᵀ · B`, where A is the result of [`Self::scores`].
    #[inline(always)]
    pub fn accumulate_transposed<S: Simd>(
        &self,
        simd: S,
        a: &[f32],
        b: Panels,
        columns: usize,
        c: &mut Accumulator,
    ) {
        let (panel, stride) = (microkernel::nr::<S>(), Self::stride::<S>());
        assert!(self.rows <= b.depth && a.len() >= self.rows * stride && stride >= self.keys);
        for column in (0..columns).step_by(panel) {
            let width = microkernel::tile_width::<S>(columns - column);
            for key in (0..self.keys).step_by(microkernel::MR) {
                let count = microkernel::MR.min(self.keys - key);
                // Earlier queries see none of these keys.
                let first = key + self.shift;
                if first >= self.rows {
                    break;
                }
                let tile = GemmTile {
                    rows: count,
                    width,
                    depth: self.rows - first,
                    a: contiguous(&a[first * stride + key..], stride).transposed(),
                    b: b.at::<S>(column, first),
                    b_stride: panel,
                    c: c.at::<S>(key, count, column),
                    c_stride: c.stride,
                    init: Init::Accumulate,
                    prefetch: None,
                };
                // SAFETY: as in `accumulate`, transposed.
                unsafe { tile.run(simd) };
            }
        }
    }
}

/// Packs a matrix in panels of columns.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
#[inline(always)]
pub(super) unsafe fn pack<'a, S: Simd>(
    simd: S,
    view: View,
    rows: usize,
    width: usize,
    out: &'a mut [f32],
) -> Panels<'a> {
    let matrix = PackPanels {
        view,
        rows,
        width,
        panel: microkernel::nr::<S>(),
        out: &mut *out,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { matrix.run_with(simd) };
    Panels {
        data: out,
        depth: rows,
    }
}

/// Packs the transpose of a matrix in panels of its `rows` columns.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
#[inline(always)]
pub(super) unsafe fn pack_transposed<'a, S: Simd>(
    simd: S,
    view: View,
    rows: usize,
    width: usize,
    out: &'a mut [f32],
) -> Panels<'a> {
    // SAFETY: guaranteed by the caller, transposed.
    unsafe { pack(simd, view.transposed(), width, rows, out) }
}

/// Packs the transpose of a matrix as a left-hand side of depth `rows`.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
#[inline(always)]
pub(super) unsafe fn pack_lhs<S: Simd>(
    simd: S,
    view: View,
    rows: usize,
    width: usize,
    out: &mut [f32],
) -> Lhs {
    let matrix = PackPanels {
        view,
        rows,
        width,
        panel: microkernel::MR,
        out: &mut *out,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { matrix.run_with(simd) };
    Lhs::packed(out, rows)
}

/// A view of contiguous rows.
#[inline(always)]
pub(super) fn contiguous(data: &[f32], width: usize) -> View {
    View {
        start: data.as_ptr(),
        row_stride: width,
        column_stride: 1,
    }
}

/// Adds a range of rows to `to`.
#[inline(always)]
pub(super) fn add_rows<S: Simd>(simd: S, rows: HeadRows, range: Range<usize>, to: &mut [f32]) {
    for row in range {
        let (from, from_rest) = S::as_simd_f32s(rows.row(row));
        let (to, to_rest) = S::as_mut_simd_f32s(to);
        for (to, from) in to.iter_mut().zip(from) {
            *to = simd.add_f32s(*to, *from);
        }
        for (to, from) in to_rest.iter_mut().zip(from_rest) {
            *to += *from;
        }
    }
}

/// The sum of a row.
#[inline(always)]
pub(super) fn sum<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (vectors, rest) = S::as_simd_f32s(row);
    let mut sums = simd.splat_f32s(0.0);
    for vector in vectors {
        sums = simd.add_f32s(sums, *vector);
    }
    let mut total = simd.reduce_sum_f32s(sums);
    for value in rest {
        total += *value;
    }
    total
}

/// Transposes a state, block by block.
#[inline(always)]
pub(super) fn transpose_state<S: Simd>(
    simd: S,
    state: &[f32],
    features: usize,
    width: usize,
    out: &mut [f32],
) {
    let panel = microkernel::nr::<S>();
    let extended_width = width + 1;
    for column in (0..width).step_by(panel) {
        for feature in (0..features).step_by(panel) {
            let rows = panel.min(features - feature);
            let columns = panel.min(width - column);
            let block = &state[feature * extended_width + column * panel..][..columns * panel];
            let matrix = PackPanels {
                view: contiguous(block, panel).transposed(),
                rows,
                width: columns,
                panel,
                out: &mut out[column * features + feature * panel..][..rows * panel],
            };
            // SAFETY: the block has these columns of a panel.
            unsafe { matrix.run_with(simd) };
        }
    }
}

/// Writes rows of a gradient.
///
/// # Safety
/// The rows must exist, and nothing else may access them.
#[inline(always)]
pub(super) unsafe fn write_rows(
    to: OutputHeads,
    batch: usize,
    head: usize,
    range: Range<usize>,
    rows: &Accumulator,
) {
    for (row, position) in range.enumerate() {
        let from = &rows.data[row * rows.stride..][..to.width];
        // SAFETY: guaranteed by the caller.
        unsafe { to.row(batch, head, position) }.copy_from_slice(from);
    }
}
