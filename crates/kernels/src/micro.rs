//! The innermost tile of every matrix product: six rows by a few vectors of sums that never leave registers.

use std::hint::black_box;

use pulp::{Simd, WithSimd};

use crate::simd::{self, Instructions};

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;

/// Vectors per row of a tile: with room for a row of B and a broadcast of A, as many sums as there are registers for. The wider
/// a tile, the fewer numbers are read for each product: where there are thirty-two registers, six by four reads ten for
/// twenty-four, and twelve by two would read fourteen.
const fn vectors<S: Simd>() -> usize {
    match S::REGISTER_COUNT {
        0..32 => 2,
        _ => 4,
    }
}

/// Columns of a tile, and of a panel of B.
pub(crate) const fn columns<S: Simd>() -> usize {
    vectors::<S>() * S::F32_LANES
}

/// Columns of a narrow tile, half of a whole one's: what is left over at the end of a row is no wider than it must be.
const fn narrow<S: Simd>() -> usize {
    columns::<S>() / 2
}

/// How wide a tile is for so many columns that are left: whole, or narrow where that is enough.
#[inline(always)]
pub(crate) const fn width<S: Simd>(left: usize) -> usize {
    match left <= narrow::<S>() {
        true => narrow::<S>(),
        false => columns::<S>(),
    }
}

/// The sizes of a tile, also for what is done outside of kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileSize {
    /// Also of a panel of B.
    pub columns: usize,
    /// Of a tile half as wide.
    pub narrow: usize,
}

impl TileSize {
    pub fn of(instructions: Instructions) -> Self {
        simd::run(instructions, Ask)
    }

    /// Whether a tile is so wide that reading A costs little beside its products.
    pub fn is_wide(self) -> bool {
        self.columns >= 64
    }

    /// What a row of so many numbers is filled up to, so that tiles read and write whole vectors.
    pub fn padded(self, width: usize) -> usize {
        width.next_multiple_of(self.narrow)
    }
}

/// Asks for the sizes of a tile.
struct Ask;

impl WithSimd for Ask {
    type Output = TileSize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> TileSize {
        size::<S>()
    }
}

/// [`TileSize`] inside a kernel.
#[inline(always)]
pub(crate) const fn size<S: Simd>() -> TileSize {
    TileSize {
        columns: columns::<S>(),
        narrow: narrow::<S>(),
    }
}

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

/// Numbers that follow each other and are needed after a tile: it asks memory for them while it computes, where it reads whole rows
/// of A.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Soon {
    /// Where they start, which may be anywhere.
    pub start: *const f32,
    /// How many of them for each [`TURN`] of the loop.
    pub per_turn: usize,
}

/// `C = base + A · B` for one tile of at most [`ROWS`] rows and [`columns`] columns.
///
/// `a` is any view; `b` has rows of [`columns`] readable numbers, `b_stride` apart, or of [`narrow`] where `width` is no more; `c`
/// has rows `c_stride` apart.
///
/// # Safety
/// `a` must be readable for `rows` by `depth`, `b` for `depth` rows as above, and `c` writable for `rows` by `width`; what is needed
/// `soon` may be anywhere.
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
    soon: Option<Soon>,
) {
    let task = Task {
        rows,
        width,
        depth,
        a,
        b,
        b_stride,
        c,
        c_stride,
        base: base.into(),
        soon,
    };
    // A call, not a copy of all its loops for each place that has tiles: there are a hundred cycles and more to a tile.
    simd.vectorize(task);
}

/// What [`tile`] was asked for.
struct Task<'a> {
    rows: usize,
    width: usize,
    depth: usize,
    a: View,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    base: Base<'a>,
    soon: Option<Soon>,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let is_narrow = self.width <= narrow::<S>();
        // SAFETY: the promise of the caller of `tile`, which alone makes tasks.
        unsafe {
            match (vectors::<S>(), is_narrow) {
                (4, false) => self.of_vectors::<S, 4>(simd),
                (4, true) | (2, false) => self.of_vectors::<S, 2>(simd),
                _ => self.of_vectors::<S, 1>(simd),
            }
        }
    }
}

impl Task<'_> {
    /// Whole, or in part.
    ///
    /// # Safety
    /// As for [`tile`]; the columns must fit so many vectors.
    #[inline(always)]
    unsafe fn of_vectors<S: Simd, const V: usize>(self, simd: S) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.rows {
                ROWS => self.whole::<S, V>(simd),
                3.. => self.part::<S, ROWS, V>(simd),
                _ => self.part::<S, 2, V>(simd),
            }
        }
    }

    /// All rows of a tile.
    ///
    /// # Safety
    /// As for [`tile`]; there must be [`ROWS`] rows.
    #[inline(always)]
    unsafe fn whole<S: Simd, const V: usize>(self, simd: S) {
        debug_assert_eq!(self.rows, ROWS);
        let (panel, b_stride) = (columns::<S>(), self.b_stride);
        let View {
            row_stride,
            column_stride,
            ..
        } = self.a;
        // SAFETY: the caller's promise.
        unsafe {
            if row_stride == 1 {
                // Panels are no special case but for steps that the compiler knows.
                let sums = match column_stride == ROWS && b_stride == panel {
                    true => self.of_columns::<S, V>(simd, ROWS, panel),
                    false => self.of_columns::<S, V>(simd, column_stride, b_stride),
                };
                self.store(simd, &sums);
            } else if column_stride == 1 {
                let sums = match b_stride == panel {
                    true => self.of_rows::<S, V>(simd, panel),
                    false => self.of_rows::<S, V>(simd, b_stride),
                };
                self.store(simd, &sums);
            } else {
                self.part::<S, ROWS, V>(simd);
            }
        }
    }

    /// Fewer than `N` rows, or columns of A that are apart. The last row is repeated.
    ///
    /// # Safety
    /// As for [`tile`]; there must be from one to `N` rows.
    #[inline(always)]
    unsafe fn part<S: Simd, const N: usize, const V: usize>(self, simd: S) {
        // SAFETY: the caller's promise.
        unsafe {
            let last = self.rows - 1;
            let pointers: [*const f32; N] = std::array::from_fn(|row| self.a.at(row.min(last), 0));
            let a_step = self.a.column_stride;
            let sums =
                accumulate::<S, N, V>(simd, self.depth, pointers, a_step, self.b, self.b_stride);
            self.store(simd, &sums);
        }
    }

    /// The sums where columns of A are numbers that follow each other: panels, or a matrix that lies transposed.
    ///
    /// # Safety
    /// As for [`tile`], with [`ROWS`] rows of A, and `V` vectors in a row of B.
    #[inline(always)]
    unsafe fn of_columns<S: Simd, const V: usize>(
        &self,
        simd: S,
        a_step: usize,
        b_step: usize,
    ) -> Sums<S, ROWS, V> {
        let mut sums = [[simd.splat_f32s(0.0); V]; ROWS];
        let (mut a, mut b) = (self.a.start, self.b);
        // SAFETY: the caller promises `depth` columns of A and rows of B; beyond the last, pointers are only made.
        unsafe {
            for _ in 0..self.depth / TURN {
                for step in 0..TURN {
                    let a = a.wrapping_add(step * a_step);
                    let b = b.wrapping_add(step * b_step);
                    add_step(simd, &mut sums, |row| *a.add(row), b);
                }
                a = a.wrapping_add(TURN * a_step);
                b = b.wrapping_add(TURN * b_step);
            }
            for _ in 0..self.depth % TURN {
                add_step(simd, &mut sums, |row| *a.add(row), b);
                a = a.wrapping_add(a_step);
                b = b.wrapping_add(b_step);
            }
        }
        sums
    }

    /// The sums of whole rows of A where they stand.
    ///
    /// # Safety
    /// As for [`tile`], with [`ROWS`] rows of A, and `V` vectors in a row of B.
    #[inline(always)]
    unsafe fn of_rows<S: Simd, const V: usize>(&self, simd: S, b_step: usize) -> Sums<S, ROWS, V> {
        let mut sums = [[simd.splat_f32s(0.0); V]; ROWS];
        let (mut b, a_stride) = (self.b, self.a.row_stride);
        // A pointer for three rows: an address can add one or two strides by itself. A black box, because the compiler would
        // see that one pointer is enough, and compute the addresses of the others at each step.
        const { assert!(ROWS == 2 * 3) };
        let start = self.a.start;
        let nothing = Soon { start, per_turn: 0 };
        let mut soon = self.soon.unwrap_or(nothing);
        let mut threes = [start, black_box(start.wrapping_add(3 * a_stride))];
        // SAFETY: the caller promises `depth` columns of A and rows of B; beyond the last, pointers are only made.
        unsafe {
            for _ in 0..self.depth / TURN {
                // No branch: a group of turns for each line to ask for would cost more than it gains.
                simd::fetch_far(soon.start, 1);
                soon.start = soon.start.wrapping_add(soon.per_turn);
                for step in 0..TURN {
                    let b = b.wrapping_add(step * b_step);
                    let number =
                        |row: usize| *threes[row / 3].wrapping_add(row % 3 * a_stride).add(step);
                    add_step(simd, &mut sums, number, b);
                }
                for three in &mut threes {
                    *three = three.wrapping_add(TURN);
                }
                b = b.wrapping_add(TURN * b_step);
            }
            for step in 0..self.depth % TURN {
                let number = |row: usize| *threes[row / 3].wrapping_add(row % 3 * a_stride + step);
                add_step(simd, &mut sums, number, b);
                b = b.wrapping_add(b_step);
            }
        }
        sums
    }

    /// Writes sums to C; of vectors that reach beyond the tile only its columns.
    ///
    /// # Safety
    /// As for [`tile`].
    #[inline(always)]
    unsafe fn store<S: Simd, const N: usize, const V: usize>(self, simd: S, sums: &Sums<S, N, V>) {
        let Self {
            rows,
            width,
            c,
            c_stride,
            base,
            ..
        } = self;
        let lanes = S::F32_LANES;
        if width == V * lanes {
            for (row, sums) in sums.iter().enumerate().take(rows) {
                for (part, sum) in sums.iter().enumerate() {
                    // SAFETY: the caller promises `rows` rows of `width` numbers in `c`, here whole vectors.
                    unsafe {
                        let c = c.add(row * c_stride + part * lanes).cast::<S::f32s>();
                        c.write_unaligned(match base {
                            Base::Nothing => *sum,
                            Base::Old => simd.add_f32s(*sum, c.read_unaligned()),
                            Base::Row(numbers) => {
                                simd.add_f32s(*sum, S::as_simd_f32s(numbers).0[part])
                            }
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
}

/// Sums of a tile, in registers.
type Sums<S, const N: usize, const V: usize> = [[<S as Simd>::f32s; V]; N];

/// Steps of the depth per turn of a loop: with places that the compiler knows, a turn is loads and sums and nothing else.
pub(crate) const TURN: usize = 4;

/// One step of the depth: a number of each row by a row of B.
///
/// # Safety
/// `b` must be readable for `V` vectors.
#[inline(always)]
unsafe fn add_step<S: Simd, const N: usize, const V: usize>(
    simd: S,
    sums: &mut Sums<S, N, V>,
    a: impl Fn(usize) -> f32,
    b: *const f32,
) {
    let mut row_of_b = [simd.splat_f32s(0.0); V];
    for (part, vector) in row_of_b.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *vector = unsafe { b.cast::<S::f32s>().add(part).read_unaligned() };
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let value = simd.splat_f32s(a(row));
        for (sum, vector) in sums.iter_mut().zip(row_of_b) {
            *sum = simd.mul_add_f32s(value, vector, *sum);
        }
    }
}

/// Any strides, and fewer rows.
///
/// # Safety
/// As for [`tile`]; each pointer is that of a row.
#[inline(always)]
unsafe fn accumulate<S: Simd, const N: usize, const V: usize>(
    simd: S,
    depth: usize,
    a: [*const f32; N],
    a_step: usize,
    b: *const f32,
    b_stride: usize,
) -> Sums<S, N, V> {
    let mut sums = [[simd.splat_f32s(0.0); V]; N];
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
