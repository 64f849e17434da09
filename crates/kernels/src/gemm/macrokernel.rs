//! The GEMM macrokernel: one block of C, with cache blocking, packing, and a loop over its tiles.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{Matrix, Scratch, with_scratch};
use crate::microkernel::{self, GemmTile, Init, MR, PrefetchA, TileSize, View};
use crate::pack::PackPanels;
use crate::simd::{self, Instructions};

/// Rows of A per block, a multiple of [`MR`].
pub(super) const MC: usize = 144;
/// The largest depth of a packed block: a panel of sixteen columns of B, or the rows of a tile, fit in L1.
pub(crate) const KC: usize = 384;
/// Columns of B packed at a time for narrow tiles, a multiple of every tile's.
pub(super) const NC: usize = 1536;
/// The largest depth of B packed at a time for narrow tiles, in blocks of at most KC: rows of C stay in L2 meanwhile.
pub(super) const MAX_PACKED_DEPTH: usize = 4 * KC;
/// Values of B packed at a time for wide tiles: they stay in L2 for all rows of A. An L3 shared by dozens of cores is too slow to
/// stream them from.
const PACKED_B_VALUES: usize = 1 << 18;
/// A block of C of at most this size stays in L2 anyway, with one block of B at a time.
const L2_OUTPUTS: usize = 1 << 17;
/// With narrow tiles, packing A pays off from this number of columns.
const PACK_A_MIN_COLUMNS: usize = 256;
/// The largest stride between columns of a transposed A that wide tiles read in place. Measured: 0.82 to 1.0 of the time with
/// packing, and up to 2.7 times as much beyond, probably because of cache set conflicts.
const MAX_IN_PLACE_STRIDE: usize = 384;
/// [`MAX_IN_PLACE_STRIDE`] with at most [`FEW_COLUMNS`] columns of B.
const MAX_IN_PLACE_STRIDE_FEW_COLUMNS: usize = 512;
/// Two wide tiles.
const FEW_COLUMNS: usize = 128;
/// Columns of C per call of the epilogue: with MC rows they are still in L2.
pub(super) const STRIP: usize = 256;

/// Bytes of a panel that may stay in L1 while others stream through it.
const L1_BYTES: usize = 32 << 10;

/// A pointer to C, to which tasks write disjoint blocks.
#[derive(Clone, Copy)]
pub(super) struct OutputPtr {
    pub start: *mut f32,
    pub columns: usize,
}

// SAFETY: each task writes only to its own block.
unsafe impl Send for OutputPtr {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for OutputPtr {}

impl OutputPtr {
    /// # Safety
    /// The element must lie inside C.
    #[inline(always)]
    pub unsafe fn at(self, row: usize, column: usize) -> *mut f32 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.start.add(row * self.columns + column) }
    }
}

/// The work of one task: some rows of A by some columns of B.
pub(super) struct Macrokernel<'a> {
    /// The id of the term, unique in this process: part of the key of the packed-B cache.
    pub term: usize,
    pub instructions: Instructions,
    pub tile: TileSize,
    pub a: Matrix<'a>,
    pub b: Matrix<'a>,
    pub init: Init<'a>,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    pub output: OutputPtr,
}

/// Blocking of the depth and of the columns of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    /// Depth of a block, at most [`KC`]: what a tile accumulates at a time.
    kc: usize,
    /// Depth that is packed at a time, in such blocks.
    packed_depth: usize,
    /// Columns that are packed at a time.
    nc: usize,
}

impl Blocking {
    /// For a product of this depth, or for a block of `outputs` elements of it.
    pub fn of(depth: usize, outputs: usize, tile: TileSize) -> Self {
        // Equal blocks: a thin last one would read and write all of C for little.
        let kc = depth.div_ceil(depth.div_ceil(KC).max(1)).max(1);
        let (packed_depth, nc) = match (tile.is_wide(), outputs > L2_OUTPUTS) {
            (true, _) if depth * STRIP <= PACKED_B_VALUES => {
                (depth, PACKED_B_VALUES / depth.max(1))
            }
            (true, _) => (kc, PACKED_B_VALUES / kc),
            (false, true) => (depth.min(MAX_PACKED_DEPTH / kc * kc), NC),
            (false, false) => (kc, NC),
        };
        Self {
            kc,
            packed_depth,
            nc: nc / STRIP * STRIP,
        }
    }

    /// How many columns of packed B a thread can cache across blocks of C: none unless they are packed in their full depth.
    pub fn cached_columns(self, depth: usize) -> Option<usize> {
        (self.packed_depth >= depth).then_some(self.nc)
    }
}

impl Macrokernel<'_> {
    /// Computes the block of C, and then calls the epilogue for each segment of a row.
    pub fn run(&self, epilogue: Option<&impl Fn(usize, usize, &mut [f32])>) {
        if self.rows.is_empty() {
            return;
        }
        let depth = self.a.columns;
        let outputs = self.rows.len() * self.columns.len();
        let Blocking {
            kc,
            packed_depth,
            nc,
        } = Blocking::of(depth, outputs, self.tile);
        let packs_a = self.packs_a();
        let mc = MC.min(self.rows.len()).next_multiple_of(MR);
        let packed_a_size = if packs_a { kc * mc } else { 0 };
        let packed_width = nc.min(self.columns.len()).next_multiple_of(self.tile.nr);
        // Taken out of the thread-local, because the epilogue may run a GEMM of its own.
        let mut cache = PACKED_B.take();
        cache.reserve(packed_depth * packed_width);
        with_scratch(&PACKED_A, packed_a_size, |packed_a| {
            for columns in chunks(self.columns.clone(), nc) {
                for packed_depths in chunks(0..depth, packed_depth) {
                    let blocks = || chunks(packed_depths.clone(), kc).zip(0..);
                    // All that the packed layout depends on: the blocking of the depth follows from the term.
                    let key = Some((
                        self.term,
                        columns.clone(),
                        packed_depths.clone(),
                        packed_width,
                    ));
                    if cache.key != key {
                        for (depths, block) in blocks() {
                            let packed_b = &mut cache.values[block * kc * packed_width..];
                            self.pack_b(depths, columns.clone(), packed_b);
                        }
                        cache.key = key;
                    }
                    for rows in chunks(self.rows.clone(), MC) {
                        for (depths, block) in blocks() {
                            let a = match packs_a {
                                true => self.pack_a(rows.clone(), depths.clone(), packed_a),
                                false => self.a.view(rows.start, depths.start),
                            };
                            let packed_b = &cache.values[block * kc * packed_width..];
                            self.multiply_block(
                                rows.clone(),
                                depths,
                                columns.clone(),
                                a,
                                packed_b,
                                epilogue,
                            );
                        }
                    }
                }
            }
        });
        PACKED_B.set(cache);
    }

    /// Whether A is packed. Wide tiles read contiguous rows in place, and also a transposed A if it is narrow: the cache lines that
    /// hold columns of several tiles are then close together.
    fn packs_a(&self) -> bool {
        let columns = self.columns.len();
        let max_stride = match columns <= FEW_COLUMNS {
            true => MAX_IN_PLACE_STRIDE_FEW_COLUMNS,
            false => MAX_IN_PLACE_STRIDE,
        };
        match (self.tile.is_wide(), self.a.row_stride, self.a.column_stride) {
            (true, _, 1) => false,
            (true, 1, stride) => stride > max_stride,
            (false, _, 1) => columns >= PACK_A_MIN_COLUMNS,
            _ => true,
        }
    }

    fn pack_b(&self, depths: Range<usize>, columns: Range<usize>, out: &mut [f32]) {
        let block = PackPanels {
            view: self.b.view(depths.start, columns.start),
            rows: depths.len(),
            width: columns.len(),
            panel: self.tile.nr,
            out,
        };
        // SAFETY: the view starts inside `b` and the block does not reach beyond its rows and columns.
        unsafe { block.run(self.instructions) };
    }

    /// Packs rows of A in panels of [`MR`], and returns a view of the first.
    fn pack_a(&self, rows: Range<usize>, depths: Range<usize>, out: &mut [f32]) -> View {
        let block = PackPanels {
            view: self.a.view(rows.start, depths.start).transposed(),
            rows: depths.len(),
            width: rows.len(),
            panel: MR,
            out: &mut *out,
        };
        // SAFETY: the view starts inside `a` and the block does not reach beyond its rows and columns.
        unsafe { block.run(self.instructions) };
        View {
            start: out.as_ptr(),
            // Inside a panel; the next panel starts after the whole depth of this one.
            row_stride: 1,
            column_stride: MR,
        }
    }

    fn multiply_block(
        &self,
        rows: Range<usize>,
        depths: Range<usize>,
        columns: Range<usize>,
        a: View,
        packed_b: &[f32],
        epilogue: Option<&impl Fn(usize, usize, &mut [f32])>,
    ) {
        let is_last = depths.end == self.a.columns;
        let init = match depths.start {
            0 => self.init,
            _ => Init::Accumulate,
        };
        let packs_a = self.packs_a();
        let panel_stride = match packs_a {
            false => MR * a.row_stride,
            true => MR * depths.len(),
        };
        // Measured: prefetching A pays off for wide tiles that read whole contiguous rows, not parts of longer rows.
        let prefetches_a = self.tile.is_wide() && !packs_a && a.row_stride == depths.len();
        for strip in chunks(columns.clone(), STRIP) {
            // SAFETY: the strip of C starts inside it.
            let c = unsafe { self.output.at(rows.start, strip.start) };
            let strip_tiles = StripTiles {
                a,
                panel_stride,
                packed_b: &packed_b[(strip.start - columns.start) * depths.len()..],
                rows: rows.len(),
                depth: depths.len(),
                width: strip.len(),
                c,
                c_stride: self.output.columns,
                init: init.skip_columns(strip.start),
                // After the first strip, the rows of A are in L2.
                prefetches_a: prefetches_a && strip.start == columns.start,
            };
            simd::run(self.instructions, strip_tiles);
            if let (true, Some(epilogue)) = (is_last, epilogue) {
                for row in rows.clone() {
                    // SAFETY: this task alone writes to this segment of row `row`.
                    let values = unsafe {
                        std::slice::from_raw_parts_mut(
                            self.output.at(row, strip.start),
                            strip.len(),
                        )
                    };
                    epilogue(row, strip.start, values);
                }
            }
        }
    }
}

/// A range in chunks of `step`.
fn chunks(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(step)
        .map(move |first| first..end.min(first + step))
}

/// All tiles of a block of rows and a strip of columns.
struct StripTiles<'a> {
    a: View,
    /// Stride from the rows of a tile to those of the next.
    panel_stride: usize,
    packed_b: &'a [f32],
    rows: usize,
    depth: usize,
    width: usize,
    c: *mut f32,
    c_stride: usize,
    init: Init<'a>,
    /// Whether the next rows of A are prefetched.
    prefetches_a: bool,
}

impl WithSimd for StripTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let nr = microkernel::nr::<S>();
        let (a_panels, b_panels) = (self.rows.div_ceil(MR), self.width.div_ceil(nr));
        // What stays in L1 for the inner loop: a panel of B, or the rows of a tile where that is too large.
        let b_stays = 4 * nr * self.depth <= L1_BYTES;
        let (outer, inner) = match b_stays {
            true => (b_panels, a_panels),
            false => (a_panels, b_panels),
        };
        // If a panel of B stays in L1, the tiles of the first panel prefetch the next rows of A; otherwise the tiles side by side
        // share the prefetching.
        let shares = match b_stays {
            true => 1,
            false => b_panels,
        };
        for outer in 0..outer {
            for inner in 0..inner {
                let (a_panel, b_panel) = match b_stays {
                    true => (inner, outer),
                    false => (outer, inner),
                };
                self.multiply_tile(simd, [a_panel, b_panel], shares);
            }
        }
    }
}

impl StripTiles<'_> {
    /// The product of two panels; the first `shares` panels of B prefetch a share each of the next rows of A.
    #[inline(always)]
    fn multiply_tile<S: Simd>(&self, simd: S, [a_panel, b_panel]: [usize; 2], shares: usize) {
        let nr = microkernel::nr::<S>();
        let (first_row, first_column) = (a_panel * MR, b_panel * nr);
        let a = View {
            start: self.a.start.wrapping_add(a_panel * self.panel_stride),
            ..self.a
        };
        let prefetch = (self.prefetches_a && b_panel < shares).then(|| PrefetchA {
            start: a
                .start
                .wrapping_add(MR * self.depth * (shares + b_panel) / shares),
            stride: MR * microkernel::UNROLL / shares,
        });
        let rows = MR.min(self.rows - first_row);
        let width = nr.min(self.width - first_column);
        // SAFETY: the panel of B was packed to `depth`, the rows of A lie inside it or its packed panels, and the tile of C lies
        // inside the rows and columns of this block.
        unsafe {
            let c = self.c.add(first_row * self.c_stride + first_column);
            // C may not be in cache yet; it arrives while the sums accumulate.
            for row in 0..rows {
                simd::prefetch_l1(c.wrapping_add(row * self.c_stride), width);
            }
            let tile = GemmTile {
                rows,
                width,
                depth: self.depth,
                a,
                b: self.packed_b[first_column * self.depth..].as_ptr(),
                b_stride: nr,
                c,
                c_stride: self.c_stride,
                init: self.init.skip_columns(first_column),
                prefetch,
            };
            tile.run(simd);
        }
    }
}

thread_local! {
    static PACKED_A: Scratch = const { RefCell::new(Vec::new()) };
    static PACKED_B: Cell<PackedBCache> = const { Cell::new(PackedBCache { key: None, values: Vec::new() }) };
}

/// A thread's packed B, which its next block of C may need again.
#[derive(Default)]
struct PackedBCache {
    /// The term, its columns and depths, and the width of a packed block.
    key: Option<(usize, Range<usize>, Range<usize>, usize)>,
    values: Vec<f32>,
}

impl PackedBCache {
    fn reserve(&mut self, size: usize) {
        if self.values.len() < size {
            self.values.resize(size, 0.0);
        }
    }
}
