//! The innermost tile of every matrix product: a few rows by two vectors of accumulators that never leave registers.

use pulp::Simd;

/// Vectors per row of a tile.
pub(crate) const VECTORS: usize = 2;

/// Columns of a tile.
pub(crate) const fn columns<S: Simd>() -> usize {
    VECTORS * S::F32_LANES
}

/// Rows of a tile: six by two accumulators fill sixteen registers, with room for a row of B and a broadcast of A.
pub(crate) const ROWS: usize = 6;

/// What becomes of the old contents of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// They are replaced.
    Replace,
    /// The product is added to them.
    Add,
}

/// A matrix in memory: where it starts, and how far apart rows and columns are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub start: *const f32,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl View {
    /// The element at a row and column.
    ///
    /// # Safety
    /// The element must lie in the memory that the view was made from.
    #[inline(always)]
    pub unsafe fn at(self, row: usize, column: usize) -> *const f32 {
        // SAFETY: the caller's promise.
        unsafe {
            self.start
                .add(row * self.row_stride + column * self.column_stride)
        }
    }

    /// The same without its first rows.
    ///
    /// # Safety
    /// They must lie in the memory that the view was made from.
    #[inline(always)]
    pub unsafe fn after_rows(self, rows: usize) -> Self {
        Self {
            // SAFETY: the caller's promise.
            start: unsafe { self.at(rows, 0) },
            ..self
        }
    }
}

/// `C (+)= A · B` for one tile of at most [`ROWS`] rows and [`columns`] columns.
///
/// `a` is any view; `b` has whole rows of [`columns`] readable numbers, `b_stride` apart; `c` has rows `c_stride` apart.
///
/// # Safety
/// `a` must be readable for `rows` by `depth`, `b` for `depth` rows of [`columns`] numbers (whatever `width` is), and `c`
/// writable for `rows` by `width`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn tile<S: Simd>(
    simd: S,
    rows: usize,
    width: usize,
    depth: usize,
    a: View,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    onto: Onto,
) {
    // SAFETY: the caller's promise; a tile of fewer rows repeats its last row, and of a narrow one only its columns are stored.
    unsafe {
        if rows == ROWS {
            let pointers: [*const f32; ROWS] = std::array::from_fn(|row| a.at(row, 0));
            let sums = accumulate::<S, ROWS>(simd, depth, pointers, a.column_stride, b, b_stride);
            store(simd, &sums, rows, width, c, c_stride, onto);
        } else if rows > 2 {
            let pointers: [*const f32; ROWS] =
                std::array::from_fn(|row| a.at(row.min(rows - 1), 0));
            let sums = accumulate::<S, ROWS>(simd, depth, pointers, a.column_stride, b, b_stride);
            store(simd, &sums, rows, width, c, c_stride, onto);
        } else {
            let pointers: [*const f32; 2] = std::array::from_fn(|row| a.at(row.min(rows - 1), 0));
            let sums = accumulate::<S, 2>(simd, depth, pointers, a.column_stride, b, b_stride);
            store(simd, &sums, rows, width, c, c_stride, onto);
        }
    }
}

#[inline(always)]
unsafe fn accumulate<S: Simd, const N: usize>(
    simd: S,
    depth: usize,
    a: [*const f32; N],
    a_step: usize,
    b: *const f32,
    b_stride: usize,
) -> [[S::f32s; VECTORS]; N] {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; N];
    let mut b = b;
    let mut offset = 0;
    for _ in 0..depth {
        // SAFETY: `b` stays within its `depth` rows and `offset` within the columns of `a`.
        unsafe {
            let columns = b.cast::<S::f32s>();
            let left = columns.read_unaligned();
            let right = columns.add(1).read_unaligned();
            for row in 0..N {
                let value = simd.splat_f32s(*a[row].add(offset));
                sums[row][0] = simd.mul_add_f32s(value, left, sums[row][0]);
                sums[row][1] = simd.mul_add_f32s(value, right, sums[row][1]);
            }
            b = b.wrapping_add(b_stride);
        }
        offset += a_step;
    }
    sums
}

#[inline(always)]
unsafe fn store<S: Simd, const N: usize>(
    simd: S,
    sums: &[[S::f32s; VECTORS]; N],
    rows: usize,
    width: usize,
    c: *mut f32,
    c_stride: usize,
    onto: Onto,
) {
    let lanes = S::F32_LANES;
    if width == columns::<S>() {
        for (row, sums) in sums.iter().enumerate().take(rows) {
            for (part, sum) in sums.iter().enumerate() {
                // SAFETY: the caller promises `rows` rows of `width` numbers in `c`, here whole vectors.
                unsafe {
                    let c = c.add(row * c_stride + part * lanes).cast::<S::f32s>();
                    let sum = match onto {
                        Onto::Replace => *sum,
                        Onto::Add => simd.add_f32s(*sum, c.read_unaligned()),
                    };
                    c.write_unaligned(sum);
                }
            }
        }
        return;
    }
    for (row, sums) in sums.iter().enumerate().take(rows) {
        // SAFETY: the caller promises `rows` rows of `width` numbers in `c`.
        let c = unsafe { std::slice::from_raw_parts_mut(c.add(row * c_stride), width) };
        let (left, right) = c.split_at_mut(width.min(lanes));
        for (part, sum) in [left, right].into_iter().zip(sums) {
            let sum = match onto {
                Onto::Replace => *sum,
                Onto::Add => simd.add_f32s(*sum, simd.partial_load_f32s(part)),
            };
            simd.partial_store_f32s(part, sum);
        }
    }
}
