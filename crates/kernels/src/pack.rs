//! Packing: blocks of a matrix copied into panels, in the order in which the microkernel reads them.

#[cfg(target_arch = "x86_64")]
mod transpose;

use pulp::{Simd, WithSimd};

use crate::microkernel::View;
use crate::simd::{self, Instructions};
#[cfg(target_arch = "x86_64")]
use transpose::{transpose_2x8, transpose_4x8, transpose_8x8, transpose_16x16};

/// A matrix to pack: `rows` by `width` values are copied into `out` as panels of `panel` columns, all rows of the first panel,
/// then of the next. The last panel is zero-padded.
pub(crate) struct PackPanels<'a> {
    pub view: View,
    pub rows: usize,
    pub width: usize,
    pub panel: usize,
    pub out: &'a mut [f32],
}

impl PackPanels<'_> {
    /// Packs the matrix.
    ///
    /// # Safety
    /// The view must be readable for `rows` by `width`.
    pub unsafe fn run(self, instructions: Instructions) {
        simd::run(instructions, PackKernel(self));
    }

    /// [`Self::run`] inside a kernel.
    ///
    /// # Safety
    /// The view must be readable for `rows` by `width`.
    #[inline(always)]
    pub unsafe fn run_with<S: Simd>(self, simd: S) {
        PackKernel(self).with_simd(simd);
    }
}

/// A matrix whose view is readable, as the callers of [`PackPanels`] guarantee.
struct PackKernel<'a>(PackPanels<'a>);

impl WithSimd for PackKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let PackPanels {
            view,
            rows,
            width,
            panel,
            out,
        } = self.0;
        let panels = width.div_ceil(panel);
        assert!(
            out.len() >= panels * panel * rows,
            "packing needs room for whole panels"
        );
        // Row-major: a few rows of all panels at a time, which touches few pages at once and reuses cache lines shared
        // by two panels.
        let block = if view.column_stride == 1 {
            BLOCK_ROWS
        } else {
            rows
        };
        for first in (0..rows).step_by(block.max(1)) {
            let block_rows = block.min(rows - first);
            for index in 0..panels {
                let column = index * panel;
                let start = (index * rows + first) * panel;
                // SAFETY: the caller guarantees the view; the block starts inside it.
                let from = unsafe { view.at(first, column) };
                // The next rows are on other pages, which the hardware prefetcher does not cross into.
                if view.column_stride == 1 && column % simd::CACHE_LINE < panel {
                    for row in 0..block_rows {
                        let distance = (block + row) * view.row_stride;
                        simd::prefetch_l2(from.wrapping_add(distance), panel);
                    }
                }
                let block = PanelBlock {
                    view: View {
                        start: from,
                        ..view
                    },
                    rows: block_rows,
                    width: panel.min(width - column),
                    panel,
                    out: &mut out[start..start + block_rows * panel],
                };
                block.pack::<S>();
            }
        }
    }
}

/// Rows packed at a time, a multiple of the height of transposed blocks: up to 256 columns fit in L1.
const BLOCK_ROWS: usize = 16;

/// Some rows of one panel: `rows` by `width` values, which the caller guarantees to be readable, copied into
/// zero-padded rows of `panel` values.
struct PanelBlock<'a> {
    view: View,
    rows: usize,
    width: usize,
    panel: usize,
    out: &'a mut [f32],
}

impl PanelBlock<'_> {
    #[inline(always)]
    fn pack<S: Simd>(mut self) {
        if self.width < self.panel {
            self.out.fill(0.0);
        }
        match (
            self.view.column_stride,
            self.width == self.panel,
            self.panel,
        ) {
            (1, true, 6) => self.copy::<6>(),
            (1, true, 16) => self.copy::<16>(),
            (1, true, 64) => self.copy::<64>(),
            (1, ..) => self.copy_partial(),
            (_, true, 6) if self.view.row_stride == 1 => self.transpose_rows::<S, 6>(),
            _ => self.transpose::<S>(),
        }
    }

    /// Full-width rows: a compile-time width makes each of them a few vector moves.
    #[inline(always)]
    fn copy<const N: usize>(&mut self) {
        let rows = self.out.as_chunks_mut::<N>().0;
        for (row, out) in rows.iter_mut().enumerate() {
            // SAFETY: the caller guarantees that the rows are readable, here `N` values each.
            *out = unsafe { self.view.at(row, 0).cast::<[f32; N]>().read_unaligned() };
        }
    }

    /// Rows of any width.
    #[inline(always)]
    fn copy_partial(&mut self) {
        for (row, out) in self.out.chunks_exact_mut(self.panel).enumerate() {
            // SAFETY: the caller guarantees that the rows are readable.
            let from = unsafe { std::slice::from_raw_parts(self.view.at(row, 0), self.width) };
            out[..self.width].copy_from_slice(from);
        }
    }

    /// A full panel of `N` contiguous columns: rows of A, seen transposed.
    #[inline(always)]
    fn transpose_rows<S: Simd, const N: usize>(&mut self) {
        let done = self.transpose_8xn::<S, N>();
        let rows = self.out.as_chunks_mut::<N>().0;
        for (row, out) in rows.iter_mut().enumerate().skip(done) {
            for (column, value) in out.iter_mut().enumerate() {
                // SAFETY: the caller guarantees that the rows are readable.
                *value = unsafe { *self.view.at(row, column) };
            }
        }
    }

    /// Blocks of eight rows by `N` columns; returns how many rows they cover.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn transpose_8xn<S: Simd, const N: usize>(&mut self) -> usize {
        const { assert!(N.is_multiple_of(2)) };
        // Eight lanes or more imply AVX.
        if S::F32_LANES < 8 {
            return 0;
        }
        for (block, to) in self.out.chunks_exact_mut(8 * N).enumerate() {
            // The hardware prefetcher does not anticipate the next panel's rows.
            if block % 2 == 0 {
                for row in N..2 * N {
                    let distance = row * self.view.column_stride + 8 * block;
                    simd::prefetch_l1(self.view.start.wrapping_add(distance), 1);
                }
            }
            // SAFETY: the CPU has AVX, as checked above; eight rows by as many columns from here lie inside the block, and `to`
            // has room for them.
            unsafe {
                let from = |column| self.view.at(8 * block, column);
                let (step, to) = (self.view.column_stride, to.as_mut_ptr());
                for column in (0..N / 4 * 4).step_by(4) {
                    transpose_4x8(from(column), step, to.add(column), N);
                }
                if N % 4 == 2 {
                    transpose_2x8(from(N - 2), step, to.add(N - 2), N);
                }
            }
        }
        self.rows / 8 * 8
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn transpose_8xn<S: Simd, const N: usize>(&mut self) -> usize {
        0
    }

    /// Any strides; in square blocks where columns are contiguous.
    #[inline(always)]
    fn transpose<S: Simd>(&mut self) {
        let [whole_rows, whole_columns] = self.transpose_squares::<S>();
        for column in 0..self.width {
            let first = if column < whole_columns {
                whole_rows
            } else {
                0
            };
            for row in first..self.rows {
                // SAFETY: the caller guarantees that the rows are readable.
                self.out[row * self.panel + column] = unsafe { *self.view.at(row, column) };
            }
        }
    }

    /// Whole 8×8 blocks; returns how many rows and columns they cover.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn transpose_squares<S: Simd>(&mut self) -> [usize; 2] {
        // Eight lanes or more imply AVX.
        if S::F32_LANES < 8 || self.view.row_stride != 1 {
            return [0, 0];
        }
        if simd::has_avx512::<S>() {
            // SAFETY: the kernel is compiled for AVX-512, so the CPU has it.
            return unsafe { self.transpose_squares_16x16() };
        }
        let [rows, columns] = [self.rows, self.width].map(|it| it / 8 * 8);
        for column in (0..columns).step_by(8) {
            for row in (0..rows).step_by(8) {
                let to = &mut self.out[row * self.panel + column..];
                // SAFETY: the CPU has AVX, as checked above; eight rows by eight columns from here lie inside the block, and
                // inside `out`.
                unsafe {
                    let from = self.view.at(row, column);
                    transpose_8x8(from, self.view.column_stride, to.as_mut_ptr(), self.panel);
                }
            }
        }
        [rows, columns]
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn transpose_squares<S: Simd>(&mut self) -> [usize; 2] {
        [0, 0]
    }

    /// [`Self::transpose_squares`] in 16×16 blocks with AVX-512: whole cache lines are written.
    ///
    /// # Safety
    /// The CPU must have AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn transpose_squares_16x16(&mut self) -> [usize; 2] {
        let [rows, columns] = [self.rows, self.width].map(|it| it / 16 * 16);
        let step = self.view.column_stride;
        for column in (0..columns).step_by(16) {
            for row in (0..rows).step_by(16) {
                // The hardware prefetcher does not anticipate the next columns.
                for next in column + 16..column + 32 {
                    simd::prefetch_l1(self.view.start.wrapping_add(row + next * step), 1);
                }
                let to = &mut self.out[row * self.panel + column..];
                // SAFETY: the caller guarantees AVX-512; sixteen rows by sixteen columns from here lie inside the block, and
                // inside `out`.
                unsafe {
                    let from = self.view.at(row, column);
                    transpose_16x16(from, step, to.as_mut_ptr(), self.panel);
                }
            }
        }
        [rows, columns]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_hold_the_matrix_and_zeros() {
        for (rows, width) in [
            (1, 1),
            (7, 5),
            (8, 16),
            (9, 33),
            (23, 40),
            (64, 6),
            (64, 12),
            (48, 130),
        ] {
            let values: Vec<f32> = (1..=rows * width).map(|i| i as f32).collect();
            for transposed in [false, true] {
                let (row_stride, column_stride) = if transposed { (1, rows) } else { (width, 1) };
                let view = View {
                    start: values.as_ptr(),
                    row_stride,
                    column_stride,
                };
                for panel in [2, 6, 16, 64] {
                    for &instructions in simd::available() {
                        let mut out = vec![f32::NAN; width.div_ceil(panel) * panel * rows];
                        let matrix = PackPanels {
                            view,
                            rows,
                            width,
                            panel,
                            out: &mut out,
                        };
                        // SAFETY: the view covers all values.
                        unsafe { matrix.run(instructions) };
                        for (i, value) in out.iter().enumerate() {
                            let row = i / panel % rows;
                            let column = i / (panel * rows) * panel + i % panel;
                            let expected = match column < width {
                                true => values[row * row_stride + column * column_stride],
                                false => 0.0,
                            };
                            assert_eq!(*value, expected, "{rows}×{width} in panels of {panel}");
                        }
                    }
                }
            }
        }
    }
}
