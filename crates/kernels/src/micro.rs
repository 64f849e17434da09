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

/// What a product is added to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base<'a> {
    /// Nothing: C is replaced.
    Nothing,
    /// The old contents of C.
    Old,
    /// The same numbers for every row, one for each column: C is replaced.
    Row(&'a [f32]),
}

impl Base<'_> {
    /// The same without its first columns.
    #[inline(always)]
    pub fn after_columns(self, columns: usize) -> Self {
        match self {
            Self::Row(row) => Self::Row(&row[columns..]),
            other => other,
        }
    }
}

impl From<Onto> for Base<'_> {
    #[inline(always)]
    fn from(onto: Onto) -> Self {
        match onto {
            Onto::Replace => Self::Nothing,
            Onto::Add => Self::Old,
        }
    }
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

/// `C = base + A · B` for one tile of at most [`ROWS`] rows and [`columns`] columns.
///
/// `a` is any view; `b` has whole rows of [`columns`] readable numbers, `b_stride` apart; `c` has rows `c_stride` apart.
///
/// # Safety
/// `a` must be readable for `rows` by `depth`, `b` for `depth` rows of [`columns`] numbers (whatever `width` is), and `c`
/// writable for `rows` by `width`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn tile<'a, S: Simd>(
    simd: S,
    rows: usize,
    width: usize,
    depth: usize,
    a: View,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    base: impl Into<Base<'a>>,
) {
    let base = base.into();
    let panel = columns::<S>();
    // SAFETY: the caller's promise; a tile of fewer rows repeats its last row, and of a narrow one only its columns are stored.
    unsafe {
        if rows == ROWS && a.row_stride == 1 {
            // Panels are no special case but for steps that the compiler knows.
            let sums = match (a.column_stride, b_stride) {
                (ROWS, step) if step == panel => {
                    accumulate_columns(simd, depth, (a.start, ROWS), (b, panel))
                }
                (a_step, b_step) => accumulate_columns(simd, depth, (a.start, a_step), (b, b_step)),
            };
            store(simd, &sums, rows, width, c, c_stride, base);
        } else if rows == ROWS && a.column_stride == 1 {
            let sums = accumulate_rows(simd, depth, a, b, b_stride);
            store(simd, &sums, rows, width, c, c_stride, base);
        } else if rows > 2 {
            let pointers: [*const f32; ROWS] =
                std::array::from_fn(|row| a.at(row.min(rows - 1), 0));
            let sums = accumulate::<S, ROWS>(simd, depth, pointers, a.column_stride, b, b_stride);
            store(simd, &sums, rows, width, c, c_stride, base);
        } else {
            let pointers: [*const f32; 2] = std::array::from_fn(|row| a.at(row.min(rows - 1), 0));
            let sums = accumulate::<S, 2>(simd, depth, pointers, a.column_stride, b, b_stride);
            store(simd, &sums, rows, width, c, c_stride, base);
        }
    }
}

/// Sums of a tile, in registers.
type Sums<S, const N: usize> = [[<S as Simd>::f32s; VECTORS]; N];

/// Steps of the depth per turn of a loop: with places that the compiler knows, a turn is loads and sums and nothing else.
const TURN: usize = 4;

/// Columns of A whose numbers follow each other: panels, or a matrix that lies transposed.
///
/// # Safety
/// As for [`tile`], with [`ROWS`] rows of A.
#[inline(always)]
unsafe fn accumulate_columns<S: Simd>(
    simd: S,
    depth: usize,
    (mut a, a_step): (*const f32, usize),
    (mut b, b_step): (*const f32, usize),
) -> Sums<S, ROWS> {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    // SAFETY: the caller promises `depth` columns of A and rows of B; beyond the last, pointers are only made.
    unsafe {
        for _ in 0..depth / TURN {
            for step in 0..TURN {
                let a = a.wrapping_add(step * a_step);
                let b = b.wrapping_add(step * b_step);
                add_step(simd, &mut sums, |row| *a.add(row), b);
            }
            a = a.wrapping_add(TURN * a_step);
            b = b.wrapping_add(TURN * b_step);
        }
        for _ in 0..depth % TURN {
            add_step(simd, &mut sums, |row| *a.add(row), b);
            a = a.wrapping_add(a_step);
            b = b.wrapping_add(b_step);
        }
    }
    sums
}

/// Whole rows of A where they stand.
///
/// # Safety
/// As for [`tile`], with [`ROWS`] rows of A.
#[inline(always)]
unsafe fn accumulate_rows<S: Simd>(
    simd: S,
    depth: usize,
    a: View,
    b: *const f32,
    b_stride: usize,
) -> Sums<S, ROWS> {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    let (mut a, mut b) = (a, b);
    // SAFETY: the caller promises `depth` columns of A and rows of B; beyond the last, pointers are only made.
    unsafe {
        for _ in 0..depth / TURN {
            for step in 0..TURN {
                let b = b.wrapping_add(step * b_stride);
                add_step(simd, &mut sums, |row| *a.at(row, 0).add(step), b);
            }
            a.start = a.start.wrapping_add(TURN);
            b = b.wrapping_add(TURN * b_stride);
        }
        for _ in 0..depth % TURN {
            add_step(simd, &mut sums, |row| *a.at(row, 0), b);
            a.start = a.start.wrapping_add(1);
            b = b.wrapping_add(b_stride);
        }
    }
    sums
}

/// One step of the depth: a number of each row by a row of B.
///
/// # Safety
/// `b` must be readable for [`columns`] numbers.
#[inline(always)]
unsafe fn add_step<S: Simd, const N: usize>(
    simd: S,
    sums: &mut Sums<S, N>,
    a: impl Fn(usize) -> f32,
    b: *const f32,
) {
    let b = b.cast::<S::f32s>();
    // SAFETY: the caller's promise.
    let (left, right) = unsafe { (b.read_unaligned(), b.add(1).read_unaligned()) };
    for (row, sums) in sums.iter_mut().enumerate() {
        let value = simd.splat_f32s(a(row));
        sums[0] = simd.mul_add_f32s(value, left, sums[0]);
        sums[1] = simd.mul_add_f32s(value, right, sums[1]);
    }
}

/// Any strides, and fewer rows.
///
/// # Safety
/// As for [`tile`]; each pointer is that of a row.
#[inline(always)]
unsafe fn accumulate<S: Simd, const N: usize>(
    simd: S,
    depth: usize,
    a: [*const f32; N],
    a_step: usize,
    b: *const f32,
    b_stride: usize,
) -> Sums<S, N> {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; N];
    let mut b = b;
    let mut offset = 0;
    for _ in 0..depth {
        // SAFETY: `b` stays within its `depth` rows and `offset` within the columns of `a`.
        unsafe { add_step(simd, &mut sums, |row| *a[row].add(offset), b) };
        b = b.wrapping_add(b_stride);
        offset += a_step;
    }
    sums
}

/// Writes the sums of a tile to C.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn store<S: Simd, const N: usize>(
    simd: S,
    sums: &Sums<S, N>,
    rows: usize,
    width: usize,
    c: *mut f32,
    c_stride: usize,
    base: Base<'_>,
) {
    let lanes = S::F32_LANES;
    if width == columns::<S>() {
        for (row, sums) in sums.iter().enumerate().take(rows) {
            for (part, sum) in sums.iter().enumerate() {
                // SAFETY: the caller promises `rows` rows of `width` numbers in `c`, here whole vectors.
                unsafe {
                    let c = c.add(row * c_stride + part * lanes).cast::<S::f32s>();
                    c.write_unaligned(match base {
                        Base::Nothing => *sum,
                        Base::Old => simd.add_f32s(*sum, c.read_unaligned()),
                        Base::Row(numbers) => simd.add_f32s(*sum, S::as_simd_f32s(numbers).0[part]),
                    });
                }
            }
        }
        return;
    }
    for (row, sums) in sums.iter().enumerate().take(rows) {
        // SAFETY: the caller promises `rows` rows of `width` numbers in `c`.
        let c = unsafe { std::slice::from_raw_parts_mut(c.add(row * c_stride), width) };
        for (index, (part, sum)) in c.chunks_mut(lanes).zip(sums).enumerate() {
            let add = |old: &[f32]| simd.add_f32s(*sum, simd.partial_load_f32s(old));
            let sum = match base {
                Base::Nothing => *sum,
                Base::Old => add(part),
                Base::Row(numbers) => add(&numbers[index * lanes..][..part.len()]),
            };
            simd.partial_store_f32s(part, sum);
        }
    }
}
