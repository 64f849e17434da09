//! The products of a chunk: operands packed in panels, whole or in the lower triangle that a causal order leaves.

use pulp::Simd;

use super::Rows;
use crate::micro::{self, Onto, View};
use crate::pack::pack_panels_with;

/// A packed right-hand side: panels of columns, each with all its rows.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub data: &'a [f32],
    /// Rows of a panel.
    pub depth: usize,
}

impl Panels<'_> {
    /// The row `from` of the panel with this first column.
    #[inline(always)]
    fn at<S: Simd>(&self, column: usize, from: usize) -> *const f32 {
        let panel = micro::columns::<S>();
        let start = column * self.depth;
        // This checks that the panel is there.
        self.data[start..start + self.depth * panel][from * panel..].as_ptr()
    }
}

/// A left-hand side: where it starts, and how far apart its tiles are.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub view: View,
    pub tile_step: usize,
}

impl Left {
    /// Rows that lie anywhere.
    #[inline(always)]
    pub fn rows(view: View) -> Self {
        Self {
            view,
            tile_step: micro::ROWS * view.row_stride,
        }
    }

    /// Panels of a tile's rows, of this depth.
    #[inline(always)]
    pub fn packed(data: &[f32], depth: usize) -> Self {
        Self {
            view: View {
                start: data.as_ptr(),
                row_stride: 1,
                column_stride: micro::ROWS,
            },
            tile_step: micro::ROWS * depth,
        }
    }

    #[inline(always)]
    fn tile(self, first_row: usize) -> View {
        View {
            start: self
                .view
                .start
                .wrapping_add(first_row / micro::ROWS * self.tile_step),
            ..self.view
        }
    }
}

/// Rows without gaps between them but what fills up panels, to be written.
pub(super) struct Sums<'a> {
    pub data: &'a mut [f32],
    /// From a row to the next.
    pub stride: usize,
    /// From a panel of columns to the next.
    pub panel_step: usize,
}

impl<'a> Sums<'a> {
    /// Rows of `width` numbers, filled up to whole panels.
    #[inline(always)]
    pub fn rows<S: Simd>(data: &'a mut [f32], width: usize) -> Self {
        let panel = micro::columns::<S>();
        Self {
            data,
            stride: width.next_multiple_of(panel),
            panel_step: panel,
        }
    }

    /// Panels of columns with so many rows each.
    #[inline(always)]
    pub fn panels<S: Simd>(data: &'a mut [f32], rows: usize) -> Self {
        let panel = micro::columns::<S>();
        Self {
            data,
            stride: panel,
            panel_step: rows * panel,
        }
    }

    /// Where a tile goes, which is checked to fit.
    #[inline(always)]
    fn at<S: Simd>(&mut self, row: usize, rows: usize, column: usize) -> *mut f32 {
        let panel = micro::columns::<S>();
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
    a: Left,
    b: Panels,
    c: &mut Sums,
    onto: Onto,
) {
    let panel = micro::columns::<S>();
    for column in (0..columns).step_by(panel) {
        let width = micro::width::<S>(columns - column);
        for row in (0..rows).step_by(micro::ROWS) {
            let count = micro::ROWS.min(rows - row);
            // SAFETY: the caller's promise for `a`; panels and sums check theirs.
            unsafe {
                micro::tile(
                    simd,
                    count,
                    width,
                    b.depth,
                    a.tile(row),
                    b.at::<S>(column, 0),
                    panel,
                    c.at::<S>(row, count, column),
                    c.stride,
                    onto,
                    None,
                );
            }
        }
    }
}

/// The triangle of a chunk: `rows` queries, `keys` keys, of which query `i` sees the first `i + 1 - shift`.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub rows: usize,
    pub keys: usize,
    pub shift: usize,
}

impl Triangle {
    /// How many keys a row sees.
    #[inline(always)]
    pub fn seen(&self, row: usize) -> usize {
        (row + 1).saturating_sub(self.shift).min(self.keys)
    }

    /// `C = A · B` where a query sees a key, and zeros where it does not. Rows of C are `stride` apart.
    ///
    /// # Safety
    /// `a` must be readable for `rows` by the depth of `b`.
    #[inline(always)]
    pub unsafe fn scores<S: Simd>(
        &self,
        simd: S,
        a: Left,
        b: Panels,
        c: &mut [f32],
        stride: usize,
    ) {
        let panel = micro::columns::<S>();
        for column in (0..self.keys).step_by(panel) {
            // The tile of the first row that sees a key of the panel.
            let first = (column + self.shift) / micro::ROWS * micro::ROWS;
            let width = micro::width::<S>(self.keys - column);
            for row in (first..self.rows).step_by(micro::ROWS) {
                let count = micro::ROWS.min(self.rows - row);
                let start = row * stride + column;
                let c = &mut c[start..start + (count - 1) * stride + panel];
                // SAFETY: the caller's promise for `a`; the panels check theirs, and the slice is as long as the tile.
                unsafe {
                    micro::tile(
                        simd,
                        count,
                        width,
                        b.depth,
                        a.tile(row),
                        b.at::<S>(column, 0),
                        panel,
                        c.as_mut_ptr(),
                        stride,
                        Onto::Replace,
                        None,
                    );
                }
            }
        }
        for row in 0..self.rows {
            c[row * stride + self.seen(row)..row * stride + self.keys].fill(0.0);
        }
    }

    /// `C += A · B`, with A what [`Self::scores`] gave: queries by keys.
    #[inline(always)]
    pub fn weigh<S: Simd>(
        &self,
        simd: S,
        a: &[f32],
        stride: usize,
        b: Panels,
        columns: usize,
        c: &mut Sums,
    ) {
        assert!(self.keys <= b.depth && a.len() >= self.rows * stride && stride >= self.keys);
        let panel = micro::columns::<S>();
        for column in (0..columns).step_by(panel) {
            let width = micro::width::<S>(columns - column);
            for row in (0..self.rows).step_by(micro::ROWS) {
                let count = micro::ROWS.min(self.rows - row);
                let depth = self.seen(row + count - 1);
                if depth == 0 {
                    continue;
                }
                let view = View {
                    start: a[row * stride..].as_ptr(),
                    row_stride: stride,
                    column_stride: 1,
                };
                // SAFETY: `a` has all rows and columns, which was checked above; panels and sums check theirs.
                unsafe {
                    micro::tile(
                        simd,
                        count,
                        width,
                        depth,
                        view,
                        b.at::<S>(column, 0),
                        panel,
                        c.at::<S>(row, count, column),
                        c.stride,
                        Onto::Add,
                        None,
                    );
                }
            }
        }
    }

    /// `C += Aᵀ · B`, with A what [`Self::scores`] gave: keys by queries.
    #[inline(always)]
    pub fn weigh_back<S: Simd>(
        &self,
        simd: S,
        a: &[f32],
        stride: usize,
        b: Panels,
        columns: usize,
        c: &mut Sums,
    ) {
        assert!(self.rows <= b.depth && a.len() >= self.rows * stride && stride >= self.keys);
        let panel = micro::columns::<S>();
        for column in (0..columns).step_by(panel) {
            let width = micro::width::<S>(columns - column);
            for key in (0..self.keys).step_by(micro::ROWS) {
                let count = micro::ROWS.min(self.keys - key);
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
                // SAFETY: as in `weigh`, with rows and columns exchanged.
                unsafe {
                    micro::tile(
                        simd,
                        count,
                        width,
                        self.rows - first,
                        view,
                        b.at::<S>(column, first),
                        panel,
                        c.at::<S>(key, count, column),
                        c.stride,
                        Onto::Add,
                        None,
                    );
                }
            }
        }
    }
}

/// A matrix as panels of columns.
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
    // SAFETY: the caller's promise.
    unsafe { pack_panels_with(simd, view, rows, width, micro::columns::<S>(), out) };
    Panels {
        data: out,
        depth: rows,
    }
}

/// A matrix, exchanged, as panels of columns: `rows` of them.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
#[inline(always)]
pub(super) unsafe fn pack_turned<'a, S: Simd>(
    simd: S,
    view: View,
    rows: usize,
    width: usize,
    out: &'a mut [f32],
) -> Panels<'a> {
    let turned = View {
        row_stride: view.column_stride,
        column_stride: view.row_stride,
        ..view
    };
    // SAFETY: the caller's promise, with rows and columns exchanged.
    unsafe { pack(simd, turned, width, rows, out) }
}

/// A matrix, exchanged, as a left-hand side of depth `rows`.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
#[inline(always)]
pub(super) unsafe fn pack_left<S: Simd>(
    simd: S,
    view: View,
    rows: usize,
    width: usize,
    out: &mut [f32],
) -> Left {
    // SAFETY: the caller's promise.
    unsafe { pack_panels_with(simd, view, rows, width, micro::ROWS, out) };
    Left::packed(out, rows)
}

/// A view of rows without gaps.
#[inline(always)]
pub(super) fn dense(data: &[f32], width: usize) -> View {
    View {
        start: data.as_ptr(),
        row_stride: width,
        column_stride: 1,
    }
}

/// Adds rows to a row.
#[inline(always)]
pub(super) fn add_rows<S: Simd>(
    simd: S,
    rows: Rows,
    range: std::ops::Range<usize>,
    to: &mut [f32],
) {
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
    for number in rest {
        total += *number;
    }
    total
}
