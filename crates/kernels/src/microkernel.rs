//! The GEMM microkernel: a tile of C, [`MR`] rows by a few vectors, accumulated in registers. After BLIS (Van Zee and van de
//! Geijn 2015).

use std::hint::black_box;

use pulp::{Simd, WithSimd};

use crate::simd::{self, Instructions};

/// Rows of a tile, and of a panel of A.
pub(crate) const MR: usize = 6;

/// Vectors per row of a tile: as many accumulators as fit in the register file beside a row of B and a broadcast of A. Wider
/// tiles load less per multiplication: with 32 registers, 6×4 vectors load ten values for twenty-four FMAs, and 12×2 would load
/// fourteen.
const fn vectors<S: Simd>() -> usize {
    match S::REGISTER_COUNT {
        0..32 => 2,
        _ => 4,
    }
}

/// Columns of a tile, and of a panel of B.
pub(crate) const fn nr<S: Simd>() -> usize {
    vectors::<S>() * S::F32_LANES
}

/// Columns of a half-width tile, which wastes less on the remainder of a row.
const fn half_nr<S: Simd>() -> usize {
    nr::<S>() / 2
}

/// The width of the tile that computes the next of `remaining` columns.
#[inline(always)]
pub(crate) const fn tile_width<S: Simd>(remaining: usize) -> usize {
    match remaining <= half_nr::<S>() {
        true => half_nr::<S>(),
        false => nr::<S>(),
    }
}

/// Tile sizes as run-time values, for code that is not generic over the instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileSize {
    /// Columns of a tile, and of a panel of B.
    pub nr: usize,
    /// Columns of a half-width tile.
    pub half_nr: usize,
}

impl TileSize {
    pub fn of(instructions: Instructions) -> Self {
        simd::run(instructions, QueryTileSize)
    }

    /// Whether tiles are so wide that reading A costs little compared with the FMAs.
    pub fn is_wide(self) -> bool {
        self.nr >= 64
    }

    /// A row length rounded up so that tiles read and write whole vectors.
    pub fn padded(self, width: usize) -> usize {
        width.next_multiple_of(self.half_nr)
    }
}

struct QueryTileSize;

impl WithSimd for QueryTileSize {
    type Output = TileSize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> TileSize {
        tile_size::<S>()
    }
}

/// [`TileSize`] inside a kernel.
#[inline(always)]
pub(crate) const fn tile_size<S: Simd>() -> TileSize {
    TileSize {
        nr: nr::<S>(),
        half_nr: half_nr::<S>(),
    }
}

/// What C is initialized with before a product is accumulated into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init<'a> {
    /// Zeros: C is overwritten (`beta = 0`).
    Zero,
    /// The contents of C (`beta = 1`).
    Accumulate,
    /// A bias with one value per column, broadcast over rows: C is overwritten.
    Bias(&'a [f32]),
}

impl Init<'_> {
    /// Skips the first columns.
    #[inline(always)]
    pub(crate) fn skip_columns(self, columns: usize) -> Self {
        match self {
            Self::Bias(bias) => Self::Bias(&bias[columns..]),
            other => other,
        }
    }
}

/// A strided view of a matrix in memory.
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
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.start
                .add(row * self.row_stride + column * self.column_stride)
        }
    }

    /// The transpose.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self {
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// The view without its first rows.
    ///
    /// # Safety
    /// They must lie in the memory that the view was made from.
    #[inline(always)]
    pub unsafe fn skip_rows(self, rows: usize) -> Self {
        Self {
            // SAFETY: guaranteed by the caller.
            start: unsafe { self.at(rows, 0) },
            ..self
        }
    }
}

/// Contiguous values, usually of A, that a later tile needs; prefetched into L2 by tiles that read whole rows of A.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefetchA {
    /// May be any address.
    pub start: *const f32,
    /// How far `start` advances, in values, per [`UNROLL`] steps of the depth.
    pub stride: usize,
}

/// `C = init + A · B` for one tile of C.
pub(crate) struct GemmTile<'a> {
    /// At most [`MR`].
    pub rows: usize,
    /// At most [`nr`].
    pub width: usize,
    pub depth: usize,
    /// Any view.
    pub a: View,
    /// Rows of [`nr`] readable values, or of [`half_nr`] where `width` is no more.
    pub b: *const f32,
    /// Stride between rows of B.
    pub b_stride: usize,
    pub c: *mut f32,
    /// Stride between rows of C.
    pub c_stride: usize,
    pub init: Init<'a>,
    /// May be any addresses.
    pub prefetch: Option<PrefetchA>,
}

impl GemmTile<'_> {
    /// Computes the tile.
    ///
    /// # Safety
    /// `a` must be readable for `rows` by `depth`, `b` for `depth` rows as described, and `c` writable for `rows` by `width`.
    #[inline(always)]
    pub unsafe fn run<S: Simd>(self, simd: S) {
        // Called, not inlined: a tile takes a hundred cycles or more, and inlining would copy all loops to every call site.
        simd.vectorize(TileKernel(self));
    }
}

/// A tile whose operands are readable and writable, as the callers of [`GemmTile::run`] guarantee.
struct TileKernel<'a>(GemmTile<'a>);

impl WithSimd for TileKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let is_half_width = self.0.width <= half_nr::<S>();
        // SAFETY: guaranteed by the caller of `GemmTile::run`, the only function that constructs kernels.
        unsafe {
            match (vectors::<S>(), is_half_width) {
                (4, false) => self.0.multiply::<S, 4>(simd),
                (4, true) | (2, false) => self.0.multiply::<S, 2>(simd),
                _ => self.0.multiply::<S, 1>(simd),
            }
        }
    }
}

impl GemmTile<'_> {
    /// # Safety
    /// As for [`Self::run`]; the columns must fit `V` vectors.
    #[inline(always)]
    unsafe fn multiply<S: Simd, const V: usize>(self, simd: S) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.rows {
                MR => self.full::<S, V>(simd),
                3.. => self.partial::<S, MR, V>(simd),
                _ => self.partial::<S, 2, V>(simd),
            }
        }
    }

    /// A tile with all [`MR`] rows.
    ///
    /// # Safety
    /// As for [`Self::run`]; there must be [`MR`] rows.
    #[inline(always)]
    unsafe fn full<S: Simd, const V: usize>(self, simd: S) {
        debug_assert_eq!(self.rows, MR);
        let (panel, b_stride) = (nr::<S>(), self.b_stride);
        let View {
            row_stride,
            column_stride,
            ..
        } = self.a;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if row_stride == 1 {
                // Packed panels differ only in strides that are compile-time constants.
                let sums = match column_stride == MR && b_stride == panel {
                    true => self.accumulate_column_major::<S, V>(simd, MR, panel),
                    false => self.accumulate_column_major::<S, V>(simd, column_stride, b_stride),
                };
                self.store(simd, &sums);
            } else if column_stride == 1 {
                let sums = match b_stride == panel {
                    true => self.accumulate_row_major::<S, V>(simd, panel),
                    false => self.accumulate_row_major::<S, V>(simd, b_stride),
                };
                self.store(simd, &sums);
            } else {
                self.partial::<S, MR, V>(simd);
            }
        }
    }

    /// Fewer than `N` rows, or an A without a unit stride. The last row is repeated.
    ///
    /// # Safety
    /// As for [`Self::run`]; there must be from one to `N` rows.
    #[inline(always)]
    unsafe fn partial<S: Simd, const N: usize, const V: usize>(self, simd: S) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let last = self.rows - 1;
            let pointers: [*const f32; N] = std::array::from_fn(|row| self.a.at(row.min(last), 0));
            let a_step = self.a.column_stride;
            let sums = accumulate_strided::<S, N, V>(
                simd,
                self.depth,
                pointers,
                a_step,
                self.b,
                self.b_stride,
            );
            self.store(simd, &sums);
        }
    }

    /// The sums where columns of A are contiguous: packed panels, or a transposed matrix read in place.
    ///
    /// # Safety
    /// As for [`Self::run`], with [`MR`] rows of A, and `V` vectors in a row of B.
    #[inline(always)]
    unsafe fn accumulate_column_major<S: Simd, const V: usize>(
        &self,
        simd: S,
        a_step: usize,
        b_step: usize,
    ) -> Accumulators<S, MR, V> {
        let mut sums = [[simd.splat_f32s(0.0); V]; MR];
        let (mut a, mut b) = (self.a.start, self.b);
        // SAFETY: the caller guarantees `depth` columns of A and rows of B; pointers beyond are not dereferenced.
        unsafe {
            for _ in 0..self.depth / UNROLL {
                for step in 0..UNROLL {
                    let a = a.wrapping_add(step * a_step);
                    let b = b.wrapping_add(step * b_step);
                    rank_one_update(simd, &mut sums, |row| *a.add(row), b);
                }
                a = a.wrapping_add(UNROLL * a_step);
                b = b.wrapping_add(UNROLL * b_step);
            }
            for _ in 0..self.depth % UNROLL {
                rank_one_update(simd, &mut sums, |row| *a.add(row), b);
                a = a.wrapping_add(a_step);
                b = b.wrapping_add(b_step);
            }
        }
        sums
    }

    /// The sums where rows of A are contiguous and read in place.
    ///
    /// # Safety
    /// As for [`Self::run`], with [`MR`] rows of A, and `V` vectors in a row of B.
    #[inline(always)]
    unsafe fn accumulate_row_major<S: Simd, const V: usize>(
        &self,
        simd: S,
        b_step: usize,
    ) -> Accumulators<S, MR, V> {
        let mut sums = [[simd.splat_f32s(0.0); V]; MR];
        let (mut b, a_stride) = (self.b, self.a.row_stride);
        // One pointer per three rows: an addressing mode can add one or two strides. Without the black box the compiler
        // derives all six rows from a single pointer and recomputes the addresses at each step.
        const { assert!(MR == 2 * 3) };
        let start = self.a.start;
        let mut prefetch = self.prefetch.unwrap_or(PrefetchA { start, stride: 0 });
        let mut row_groups = [start, black_box(start.wrapping_add(3 * a_stride))];
        // SAFETY: the caller guarantees `depth` columns of A and rows of B; pointers beyond are not dereferenced.
        unsafe {
            for _ in 0..self.depth / UNROLL {
                // Unconditional: skipping the iterations that stay in the same cache line would cost more than it saves.
                simd::prefetch_l2(prefetch.start, 1);
                prefetch.start = prefetch.start.wrapping_add(prefetch.stride);
                for step in 0..UNROLL {
                    let b = b.wrapping_add(step * b_step);
                    let a = |row: usize| {
                        *row_groups[row / 3]
                            .wrapping_add(row % 3 * a_stride)
                            .add(step)
                    };
                    rank_one_update(simd, &mut sums, a, b);
                }
                for group in &mut row_groups {
                    *group = group.wrapping_add(UNROLL);
                }
                b = b.wrapping_add(UNROLL * b_step);
            }
            for step in 0..self.depth % UNROLL {
                let a = |row: usize| *row_groups[row / 3].wrapping_add(row % 3 * a_stride + step);
                rank_one_update(simd, &mut sums, a, b);
                b = b.wrapping_add(b_step);
            }
        }
        sums
    }

    /// Writes the sums to C, masking vectors that extend beyond the tile.
    ///
    /// # Safety
    /// As for [`Self::run`].
    #[inline(always)]
    unsafe fn store<S: Simd, const N: usize, const V: usize>(
        self,
        simd: S,
        sums: &Accumulators<S, N, V>,
    ) {
        let Self {
            rows,
            width,
            c,
            c_stride,
            init,
            ..
        } = self;
        let lanes = S::F32_LANES;
        if width == V * lanes {
            for (row, sums) in sums.iter().enumerate().take(rows) {
                for (part, sum) in sums.iter().enumerate() {
                    // SAFETY: the caller guarantees `rows` rows of `width` values in `c`, here whole vectors.
                    unsafe {
                        let c = c.add(row * c_stride + part * lanes).cast::<S::f32s>();
                        c.write_unaligned(match init {
                            Init::Zero => *sum,
                            Init::Accumulate => simd.add_f32s(*sum, c.read_unaligned()),
                            Init::Bias(bias) => simd.add_f32s(*sum, S::as_simd_f32s(bias).0[part]),
                        });
                    }
                }
            }
            return;
        }
        for (row, sums) in sums.iter().enumerate().take(rows) {
            // SAFETY: the caller guarantees `rows` rows of `width` values in `c`.
            let c = unsafe { std::slice::from_raw_parts_mut(c.add(row * c_stride), width) };
            for (index, (part, sum)) in c.chunks_mut(lanes).zip(sums).enumerate() {
                let add = |old: &[f32]| simd.add_f32s(*sum, simd.partial_load_f32s(old));
                let sum = match init {
                    Init::Zero => *sum,
                    Init::Accumulate => add(part),
                    Init::Bias(bias) => add(&bias[index * lanes..][..part.len()]),
                };
                simd.partial_store_f32s(part, sum);
            }
        }
    }
}

/// The sums of a tile, in registers.
type Accumulators<S, const N: usize, const V: usize> = [[<S as Simd>::f32s; V]; N];

/// Unrolling factor over the depth: constant offsets leave nothing in the loop body but loads and FMAs.
pub(crate) const UNROLL: usize = 4;

/// One step of the depth: a column of A times a row of B.
///
/// # Safety
/// `b` must be readable for `V` vectors.
#[inline(always)]
unsafe fn rank_one_update<S: Simd, const N: usize, const V: usize>(
    simd: S,
    sums: &mut Accumulators<S, N, V>,
    a: impl Fn(usize) -> f32,
    b: *const f32,
) {
    let mut row_of_b = [simd.splat_f32s(0.0); V];
    for (part, vector) in row_of_b.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        *vector = unsafe { b.cast::<S::f32s>().add(part).read_unaligned() };
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let value = simd.splat_f32s(a(row));
        for (sum, vector) in sums.iter_mut().zip(row_of_b) {
            *sum = simd.mul_add_f32s(value, vector, *sum);
        }
    }
}

/// The sums for any strides and any number of rows.
///
/// # Safety
/// As for [`GemmTile::run`]; each pointer is that of a row.
#[inline(always)]
unsafe fn accumulate_strided<S: Simd, const N: usize, const V: usize>(
    simd: S,
    depth: usize,
    a: [*const f32; N],
    a_step: usize,
    b: *const f32,
    b_stride: usize,
) -> Accumulators<S, N, V> {
    let mut sums = [[simd.splat_f32s(0.0); V]; N];
    let mut b = b;
    let mut offset = 0;
    for _ in 0..depth {
        // SAFETY: `b` stays within its `depth` rows and `offset` within the columns of `a`.
        unsafe { rank_one_update(simd, &mut sums, |row| *a[row].add(offset), b) };
        b = b.wrapping_add(b_stride);
        offset += a_step;
    }
    sums
}
