//! The products of a chunk, whole or in the lower triangle of causal attention, with operands packed in panels.

use std::ops::Range;

use pulp::Simd;

use super::{HeadRows, OutputHeads};
use crate::microkernel::{self, Init, View};
use crate::pack::pack_panels_with;

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
            // SAFETY: the caller guarantees `a`; panels and accumulator check theirs.
            unsafe {
                microkernel::gemm_tile(
                    simd,
                    count,
                    width,
                    b.depth,
                    a.tile(row),
                    b.at::<S>(column, 0),
                    panel,
                    c.at::<S>(row, count, column),
                    c.stride,
                    init,
                    None,
                );
            }
        }
    }
}

/// The causal triangle of a chunk: of `keys` keys, query `i` of `rows` sees the first `i + 1 - shift`.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub rows: usize,
    pub keys: usize,
    pub shift: usize,
}

impl Triangle {
    /// The number of keys visible to a row.
    #[inline(always)]
    pub fn visible_keys(&self, row: usize) -> usize {
        (row + 1).saturating_sub(self.shift).min(self.keys)
    }

    /// `C = A · B` where a query sees a key, and zeros where it does not. Rows of C are `stride` apart.
    ///
    /// # Safety
    /// `a` must be readable for `rows` by the depth of `b`.
    #[inline(always)]
    pub unsafe fn scores<S: Simd>(&self, simd: S, a: Lhs, b: Panels, c: &mut [f32], stride: usize) {
        let panel = microkernel::nr::<S>();
        for column in (0..self.keys).step_by(panel) {
            // The microkernel tile of the first row that sees a key of the panel.
            let first = (column + self.shift) / microkernel::MR * microkernel::MR;
            let width = microkernel::tile_width::<S>(self.keys - column);
            for row in (first..self.rows).step_by(microkernel::MR) {
                let count = microkernel::MR.min(self.rows - row);
                let start = row * stride + column;
                let c = &mut c[start..start + (count - 1) * stride + panel];
                // SAFETY: the caller guarantees `a`; the panels check theirs, and the slice is as long as the tile.
                unsafe {
                    microkernel::gemm_tile(
                        simd,
                        count,
                        width,
                        b.depth,
                        a.tile(row),
                        b.at::<S>(column, 0),
                        panel,
                        c.as_mut_ptr(),
                        stride,
                        Init::Zero,
                        None,
                    );
                }
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
        stride: usize,
        b: Panels,
        columns: usize,
        c: &mut Accumulator,
    ) {
        assert!(self.keys <= b.depth && a.len() >= self.rows * stride && stride >= self.keys);
        let panel = microkernel::nr::<S>();
        for column in (0..columns).step_by(panel) {
            let width = microkernel::tile_width::<S>(columns - column);
            for row in (0..self.rows).step_by(microkernel::MR) {
                let count = microkernel::MR.min(self.rows - row);
                let depth = self.visible_keys(row + count - 1);
                if depth == 0 {
                    continue;
                }
                let view = View {
                    start: a[row * stride..].as_ptr(),
                    row_stride: stride,
                    column_stride: 1,
                };
                // SAFETY: `a` was checked above to have all rows and columns; panels and accumulator check theirs.
                unsafe {
                    microkernel::gemm_tile(
                        simd,
                        count,
                        width,
                        depth,
                        view,
                        b.at::<S>(column, 0),
                        panel,
                        c.at::<S>(row, count, column),
                        c.stride,
                        Init::Accumulate,
                        None,
                    );
                }
            }
        }
    }

    /// `C += Aᵀ · B`, where A is the result of [`Self::scores`].
    #[inline(always)]
    pub fn accumulate_transposed<S: Simd>(
        &self,
        simd: S,
        a: &[f32],
        stride: usize,
        b: Panels,
        columns: usize,
        c: &mut Accumulator,
    ) {
        assert!(self.rows <= b.depth && a.len() >= self.rows * stride && stride >= self.keys);
        let panel = microkernel::nr::<S>();
        for column in (0..columns).step_by(panel) {
            let width = microkernel::tile_width::<S>(columns - column);
            for key in (0..self.keys).step_by(microkernel::MR) {
                let count = microkernel::MR.min(self.keys - key);
                // Earlier queries see none of these keys.
                let first = key + self.shift;
                if first >= self.rows {
                    break;
                }
                let view = View {
                    start: a[first * stride + key..].as_ptr(),
                    row_stride: 1,
                    column_stride: stride,
                };
                // SAFETY: as in `accumulate`, transposed.
                unsafe {
                    microkernel::gemm_tile(
                        simd,
                        count,
                        width,
                        self.rows - first,
                        view,
                        b.at::<S>(column, first),
                        panel,
                        c.at::<S>(key, count, column),
                        c.stride,
                        Init::Accumulate,
                        None,
                    );
                }
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
    // SAFETY: guaranteed by the caller.
    unsafe { pack_panels_with(simd, view, rows, width, microkernel::nr::<S>(), out) };
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
    let transposed = View {
        row_stride: view.column_stride,
        column_stride: view.row_stride,
        ..view
    };
    // SAFETY: guaranteed by the caller, transposed.
    unsafe { pack(simd, transposed, width, rows, out) }
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
    // SAFETY: guaranteed by the caller.
    unsafe { pack_panels_with(simd, view, rows, width, microkernel::MR, out) };
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
            let view = View {
                start: block.as_ptr(),
                row_stride: 1,
                column_stride: panel,
            };
            let out = &mut out[column * features + feature * panel..][..rows * panel];
            // SAFETY: the block has these columns of a panel.
            unsafe { pack_panels_with(simd, view, rows, columns, panel, out) };
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
