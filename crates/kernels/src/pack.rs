//! Packing: blocks of a matrix copied into panels, in the order in which the microkernel reads them.

use pulp::{Simd, WithSimd};

use crate::microkernel::View;
use crate::simd::{self, Instructions};

/// Copies `rows` by `width` values into `out` as panels of `panel` columns: all rows of the first panel, then of the next.
/// The last panel is zero-padded.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
pub(crate) unsafe fn pack_panels(
    instructions: Instructions,
    view: View,
    rows: usize,
    width: usize,
    panel: usize,
    out: &mut [f32],
) {
    let panels = PackPanels {
        view,
        rows,
        width,
        panel,
        out,
    };
    simd::run(instructions, panels);
}

/// [`pack_panels`] inside a kernel.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
#[inline(always)]
pub(crate) unsafe fn pack_panels_with<S: Simd>(
    simd: S,
    view: View,
    rows: usize,
    width: usize,
    panel: usize,
    out: &mut [f32],
) {
    let panels = PackPanels {
        view,
        rows,
        width,
        panel,
        out,
    };
    panels.with_simd(simd);
}

/// The arguments of [`pack_panels`], whose caller guarantees that the view is readable.
struct PackPanels<'a> {
    view: View,
    rows: usize,
    width: usize,
    panel: usize,
    out: &'a mut [f32],
}

impl WithSimd for PackPanels<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self {
            view,
            rows,
            width,
            panel,
            out,
        } = self;
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
            // SAFETY: eight rows by as many columns from here lie inside the block, and `to` has room for them.
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
            return self.transpose_squares_16x16();
        }
        let [rows, columns] = [self.rows, self.width].map(|it| it / 8 * 8);
        for column in (0..columns).step_by(8) {
            for row in (0..rows).step_by(8) {
                let to = &mut self.out[row * self.panel + column..];
                // SAFETY: eight rows by eight columns from here lie inside the block, and inside `out`.
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
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn transpose_squares_16x16(&mut self) -> [usize; 2] {
        let [rows, columns] = [self.rows, self.width].map(|it| it / 16 * 16);
        let step = self.view.column_stride;
        for column in (0..columns).step_by(16) {
            for row in (0..rows).step_by(16) {
                // The hardware prefetcher does not anticipate the next columns.
                for next in column + 16..column + 32 {
                    simd::prefetch_l1(self.view.start.wrapping_add(row + next * step), 1);
                }
                let to = &mut self.out[row * self.panel + column..];
                // SAFETY: sixteen rows by sixteen columns from here lie inside the block, and inside `out`.
                unsafe {
                    let from = self.view.at(row, column);
                    transpose_16x16(from, step, to.as_mut_ptr(), self.panel);
                }
            }
        }
        [rows, columns]
    }
}

/// Transposes sixteen rows of sixteen values.
///
/// # Safety
/// The CPU must have AVX-512; sixteen rows, `from_stride` apart, must be readable, and as many, `to_stride` apart,
/// writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn transpose_16x16(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::{
        __m512, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps, _mm512_setzero_ps,
        _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps,
        _mm512_unpacklo_pd, _mm512_unpacklo_ps,
    };
    let mut rows = [_mm512_setzero_ps(); 16];
    for (i, row) in rows.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        *row = unsafe { _mm512_loadu_ps(from.add(i * from_stride)) };
    }
    let mut other = rows;
    // Interleave pairs of rows, then groups of four; then exchange 128-bit lanes, twice.
    for i in 0..8 {
        let [a, b] = [rows[2 * i], rows[2 * i + 1]];
        other[2 * i] = _mm512_unpacklo_ps(a, b);
        other[2 * i + 1] = _mm512_unpackhi_ps(a, b);
    }
    for i in 0..4 {
        for half in 0..2 {
            let [a, b] =
                [other[4 * i + half], other[4 * i + half + 2]].map(|it| _mm512_castps_pd(it));
            rows[4 * i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            rows[4 * i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    let even = |a: __m512, b: __m512| _mm512_shuffle_f32x4::<0x88>(a, b);
    let odd = |a: __m512, b: __m512| _mm512_shuffle_f32x4::<0xDD>(a, b);
    for i in 0..4 {
        for half in [0, 8] {
            other[half + i] = even(rows[half + i], rows[half + i + 4]);
            other[half + i + 4] = odd(rows[half + i], rows[half + i + 4]);
        }
    }
    for i in 0..8 {
        rows[i] = even(other[i], other[i + 8]);
        rows[i + 8] = odd(other[i], other[i + 8]);
    }
    for (i, row) in rows.into_iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_storeu_ps(to.add(i * to_stride), row) };
    }
}

/// Transposes eight rows of eight values.
///
/// # Safety
/// The CPU must have AVX; eight rows, `from_stride` apart, must be readable, and as many, `to_stride` apart, writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
        _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * from_stride));
        let r = [
            row(0),
            row(1),
            row(2),
            row(3),
            row(4),
            row(5),
            row(6),
            row(7),
        ];
        // Interleave pairs of rows, then groups of four; then exchange 128-bit lanes.
        let p = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
            _mm256_unpacklo_ps(r[2], r[3]),
            _mm256_unpackhi_ps(r[2], r[3]),
            _mm256_unpacklo_ps(r[4], r[5]),
            _mm256_unpackhi_ps(r[4], r[5]),
            _mm256_unpacklo_ps(r[6], r[7]),
            _mm256_unpackhi_ps(r[6], r[7]),
        ];
        let q = [
            _mm256_shuffle_ps::<0x44>(p[0], p[2]),
            _mm256_shuffle_ps::<0xEE>(p[0], p[2]),
            _mm256_shuffle_ps::<0x44>(p[1], p[3]),
            _mm256_shuffle_ps::<0xEE>(p[1], p[3]),
            _mm256_shuffle_ps::<0x44>(p[4], p[6]),
            _mm256_shuffle_ps::<0xEE>(p[4], p[6]),
            _mm256_shuffle_ps::<0x44>(p[5], p[7]),
            _mm256_shuffle_ps::<0xEE>(p[5], p[7]),
        ];
        for i in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(q[i], q[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(q[i], q[i + 4]);
            _mm256_storeu_ps(to.add(i * to_stride), low);
            _mm256_storeu_ps(to.add((i + 4) * to_stride), high);
        }
    }
}

/// Transposes four rows of eight values into eight of four.
///
/// # Safety
/// The CPU must have AVX; four rows, `from_stride` apart, must be readable, and eight, `to_stride` apart, writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn transpose_4x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::{
        _mm_storeu_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_loadu_ps,
        _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * from_stride));
        let r = [row(0), row(1), row(2), row(3)];
        let p = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
            _mm256_unpacklo_ps(r[2], r[3]),
            _mm256_unpackhi_ps(r[2], r[3]),
        ];
        let fours = [
            _mm256_shuffle_ps::<0x44>(p[0], p[2]),
            _mm256_shuffle_ps::<0xEE>(p[0], p[2]),
            _mm256_shuffle_ps::<0x44>(p[1], p[3]),
            _mm256_shuffle_ps::<0xEE>(p[1], p[3]),
        ];
        for (i, four) in fours.into_iter().enumerate() {
            _mm_storeu_ps(to.add(i * to_stride), _mm256_castps256_ps128(four));
            let high = _mm256_extractf128_ps::<1>(four);
            _mm_storeu_ps(to.add((i + 4) * to_stride), high);
        }
    }
}

/// Transposes two rows of eight values into eight of two.
///
/// # Safety
/// The CPU must have AVX; two rows, `from_stride` apart, must be readable, and eight, `to_stride` apart, writable.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn transpose_2x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::{
        _mm_castps_pd, _mm_storeh_pd, _mm_storel_pd, _mm256_castps256_ps128, _mm256_extractf128_ps,
        _mm256_loadu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let r = [
            _mm256_loadu_ps(from),
            _mm256_loadu_ps(from.add(from_stride)),
        ];
        let pairs = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
        ];
        let to = |i: usize| to.add(i * to_stride).cast();
        for (i, pair) in pairs.into_iter().enumerate() {
            let low = _mm_castps_pd(_mm256_castps256_ps128(pair));
            let high = _mm_castps_pd(_mm256_extractf128_ps::<1>(pair));
            _mm_storel_pd(to(2 * i), low);
            _mm_storeh_pd(to(2 * i + 1), low);
            _mm_storel_pd(to(2 * i + 4), high);
            _mm_storeh_pd(to(2 * i + 5), high);
        }
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
                        // SAFETY: the view covers all values.
                        unsafe { pack_panels(instructions, view, rows, width, panel, &mut out) };
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
