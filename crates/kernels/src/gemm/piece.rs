//! One piece of a product: packed panels, blocks that fit the caches, and all tiles of a block.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{Matrix, Scratch, with_scratch};
use crate::micro::{self, Base, Soon, TileSize, View};
use crate::pack::pack_panels;
use crate::simd::{self, Instructions};

/// Rows of A that meet a block of B at a time, a multiple of a tile's.
pub(super) const MC: usize = 144;
/// The largest depth of a packed block: a panel of sixteen columns of B, or the rows of a tile, fit into the first cache.
pub(super) const KC: usize = 384;
/// Columns of B that are packed at a time for tiles that are not wide, a multiple of every tile's.
pub(super) const NC: usize = 1536;
/// The largest depth of B that is packed at a time for these, in blocks of at most KC: rows of C stay in the second cache
/// meanwhile.
pub(super) const DEEP: usize = 4 * KC;
/// Numbers of B that are packed at a time for wide tiles: they stay in the second cache while all rows of A pass by. The third,
/// where it is shared by dozens of cores, is too slow to keep them in.
const PACKED_NUMBERS: usize = 1 << 18;
/// So many results stay in the second cache anyway, and one block of B at a time does too.
const FEW_RESULTS: usize = 1 << 17;
/// So many columns are worth a copy of the rows of A that they meet, for tiles that are not wide.
const MANY_COLUMNS: usize = 256;
/// Where numbers of one row of A, which lies transposed, are at most so far apart, wide tiles read them in place. Measured: 0.82 to
/// 1.0 of the product's time, and beyond it up to 2.7 times as much, probably because all lie in a few sets of the caches.
const CLOSE: usize = 384;
/// The same where they meet no more than [`FEW_COLUMNS`].
const CLOSE_FOR_FEW: usize = 512;
/// Two tiles of wide ones.
const FEW_COLUMNS: usize = 128;
/// Columns that are finished at a time: with MC rows they still are in the second cache.
pub(super) const STRIP: usize = 256;

/// Bytes of a panel that may stay in the first cache while others pass by.
const FIRST_CACHE: usize = 32 << 10;

/// Where C is. Tasks write to disjoint pieces of it.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub start: *mut f32,
    pub columns: usize,
}

// SAFETY: each task writes only to its own piece.
unsafe impl Send for Target {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// The element must lie inside C.
    #[inline(always)]
    pub unsafe fn at(self, row: usize, column: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.start.add(row * self.columns + column) }
    }
}

/// The work of one task: some rows of A by some columns of B.
pub(super) struct Piece<'a> {
    /// The number of the term: none has the same while the program runs.
    pub term: usize,
    pub instructions: Instructions,
    pub tile: TileSize,
    pub a: Matrix<'a>,
    pub b: Matrix<'a>,
    pub base: Base<'a>,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    pub target: Target,
}

/// How a product walks its depth and the columns of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Numbers of a block of depth: what a tile sums at a time.
    deep: usize,
    /// Numbers of depth that are packed at a time, in such blocks.
    deepest: usize,
    /// Columns that are packed at a time.
    widest: usize,
}

impl Blocks {
    /// Of a product so deep, or of a piece of it with so many results.
    pub fn of(depth: usize, results: usize, tile: TileSize) -> Self {
        // Equal blocks: a thin last one would read and write all of C for little.
        let deep = depth.div_ceil(depth.div_ceil(KC).max(1)).max(1);
        let (deepest, widest) = match (tile.is_wide(), results > FEW_RESULTS) {
            (true, _) if depth * STRIP <= PACKED_NUMBERS => (depth, PACKED_NUMBERS / depth.max(1)),
            (true, _) => (deep, PACKED_NUMBERS / deep),
            (false, true) => (depth.min(DEEP / deep * deep), NC),
            (false, false) => (deep, NC),
        };
        Self {
            deep,
            deepest,
            widest: widest / STRIP * STRIP,
        }
    }

    /// How many columns a thread packs once for several pieces, where it packs them in their whole depth.
    pub fn kept_columns(self, depth: usize) -> Option<usize> {
        (self.deepest >= depth).then_some(self.widest)
    }
}

impl Piece<'_> {
    /// Multiplies, and then finishes each piece of a row if that is asked.
    pub fn multiply(&self, finish: Option<&impl Fn(usize, usize, &mut [f32])>) {
        if self.rows.is_empty() {
            return;
        }
        let depth = self.a.columns;
        let results = self.rows.len() * self.columns.len();
        let Blocks {
            deep,
            deepest,
            widest,
        } = Blocks::of(depth, results, self.tile);
        let packs_a = self.packs_a();
        let tall = MC.min(self.rows.len()).next_multiple_of(micro::ROWS);
        let size_of_a = if packs_a { deep * tall } else { 0 };
        let wide = widest
            .min(self.columns.len())
            .next_multiple_of(self.tile.columns);
        // Taken out of its place meanwhile: what finishes a row may be a product, too.
        let mut kept = KEPT.take();
        kept.make_room(deepest * wide);
        with_scratch(&PACKED_A, size_of_a, |packed_a| {
            for columns in cut(self.columns.clone(), widest) {
                for far in cut(0..depth, deepest) {
                    let blocks = || cut(far.clone(), deep).zip(0..);
                    // All that says what stands where: blocks of depth depend on the term alone.
                    let part = Some((self.term, columns.clone(), far.clone(), wide));
                    if kept.part != part {
                        for (depths, block) in blocks() {
                            let packed_b = &mut kept.numbers[block * deep * wide..];
                            self.pack_b(depths, columns.clone(), packed_b);
                        }
                        kept.part = part;
                    }
                    for rows in cut(self.rows.clone(), MC) {
                        for (depths, block) in blocks() {
                            let a = match packs_a {
                                true => self.pack_a(rows.clone(), depths.clone(), packed_a),
                                false => self.a.view(rows.start, depths.start),
                            };
                            let packed_b = &kept.numbers[block * deep * wide..];
                            self.multiply_block(
                                rows.clone(),
                                depths,
                                columns.clone(),
                                a,
                                packed_b,
                                finish,
                            );
                        }
                    }
                }
            }
        });
        KEPT.set(kept);
    }

    /// Whether rows of A are copied, in the order in which tiles read them. Wide tiles read rows where they stand, and also a matrix
    /// that lies transposed if it is narrow: lines of the cache that hold numbers of several tiles are then not far apart.
    fn packs_a(&self) -> bool {
        let columns = self.columns.len();
        let close = match columns <= FEW_COLUMNS {
            true => CLOSE_FOR_FEW,
            false => CLOSE,
        };
        match (self.tile.is_wide(), self.a.row_stride, self.a.column_stride) {
            (true, _, 1) => false,
            (true, 1, apart) => apart > close,
            (false, _, 1) => columns >= MANY_COLUMNS,
            _ => true,
        }
    }

    fn pack_b(&self, depths: Range<usize>, columns: Range<usize>, out: &mut [f32]) {
        let view = self.b.view(depths.start, columns.start);
        // SAFETY: the view starts inside `b` and the block does not reach beyond its rows and columns.
        unsafe {
            pack_panels(
                self.instructions,
                view,
                depths.len(),
                columns.len(),
                self.tile.columns,
                out,
            );
        }
    }

    /// Panels of a tile's rows, and how a tile reads them.
    fn pack_a(&self, rows: Range<usize>, depths: Range<usize>, out: &mut [f32]) -> View {
        let view = self.a.view(rows.start, depths.start);
        let turned = View {
            row_stride: view.column_stride,
            column_stride: view.row_stride,
            ..view
        };
        // SAFETY: the view starts inside `a` and the block does not reach beyond its rows and columns.
        unsafe {
            pack_panels(
                self.instructions,
                turned,
                depths.len(),
                rows.len(),
                micro::ROWS,
                out,
            );
        }
        View {
            start: out.as_ptr(),
            // From a panel's first row to the next panel's it is a whole panel; inside a panel rows are neighbours.
            row_stride: 1,
            column_stride: micro::ROWS,
        }
    }

    fn multiply_block(
        &self,
        rows: Range<usize>,
        depths: Range<usize>,
        columns: Range<usize>,
        a: View,
        packed_b: &[f32],
        finish: Option<&impl Fn(usize, usize, &mut [f32])>,
    ) {
        let last = depths.end == self.a.columns;
        let base = match depths.start {
            0 => self.base,
            _ => Base::Old,
        };
        let packs_a = self.packs_a();
        let panel_stride = match packs_a {
            false => micro::ROWS * a.row_stride,
            true => micro::ROWS * depths.len(),
        };
        // Asking early for rows of A was measured to pay for wide tiles that read them whole, not for parts of longer rows. Whole
        // rows follow each other.
        let asks = self.tile.is_wide() && !packs_a && a.row_stride == depths.len();
        for strip in cut(columns.clone(), STRIP) {
            // SAFETY: the piece of C starts inside it.
            let c = unsafe { self.target.at(rows.start, strip.start) };
            let tiles = Tiles {
                a,
                panel_stride,
                packed_b: &packed_b[(strip.start - columns.start) * depths.len()..],
                rows: rows.len(),
                depth: depths.len(),
                width: strip.len(),
                c,
                c_stride: self.target.columns,
                base: base.after_columns(strip.start),
                // After the first strip they are in the second cache.
                asks_for_a: asks && strip.start == columns.start,
            };
            simd::run(self.instructions, tiles);
            if let (true, Some(finish)) = (last, finish) {
                for row in rows.clone() {
                    // SAFETY: this task alone writes to this piece of row `row`.
                    let values = unsafe {
                        std::slice::from_raw_parts_mut(
                            self.target.at(row, strip.start),
                            strip.len(),
                        )
                    };
                    finish(row, strip.start, values);
                }
            }
        }
    }
}

/// A range in steps.
fn cut(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(step)
        .map(move |first| first..end.min(first + step))
}

/// All tiles of a block of rows and a strip of columns.
struct Tiles<'a> {
    a: View,
    /// From the rows of a tile to those of the next.
    panel_stride: usize,
    packed_b: &'a [f32],
    rows: usize,
    depth: usize,
    width: usize,
    c: *mut f32,
    c_stride: usize,
    base: Base<'a>,
    /// Whether memory is asked for rows of A before their turn.
    asks_for_a: bool,
}

impl WithSimd for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (tall, panel) = (micro::ROWS, micro::columns::<S>());
        let (tiles, panels) = (self.rows.div_ceil(tall), self.width.div_ceil(panel));
        // What stays in the first cache while the others pass by: a panel of B, or the rows of a tile where that is too large.
        let b_stays = 4 * panel * self.depth <= FIRST_CACHE;
        let (outer, inner) = match b_stays {
            true => (panels, tiles),
            false => (tiles, panels),
        };
        for outer in 0..outer {
            for inner in 0..inner {
                let (tile, index) = match b_stays {
                    true => (inner, outer),
                    false => (outer, inner),
                };
                let (first_row, first_column) = (tile * tall, index * panel);
                let a = View {
                    start: self.a.start.wrapping_add(tile * self.panel_stride),
                    ..self.a
                };
                // Who asks for the next rows of A: where a panel of B stays, the tiles of the first, each for all; else the tiles
                // beside each other, each for its part.
                let askers = match b_stays {
                    true => 1,
                    false => panels,
                };
                let soon = (self.asks_for_a && index < askers).then(|| Soon {
                    start: a
                        .start
                        .wrapping_add(tall * self.depth * (askers + index) / askers),
                    per_turn: tall * micro::TURN / askers,
                });
                let b = self.packed_b[first_column * self.depth..].as_ptr();
                let (rows, width) = (
                    tall.min(self.rows - first_row),
                    panel.min(self.width - first_column),
                );
                // SAFETY: the panel of B was packed to `depth`, the rows of A lie inside it or its packed panels, and the
                // tile of C lies inside the rows and columns of this block.
                unsafe {
                    let c = self.c.add(first_row * self.c_stride + first_column);
                    // C may be far away; it is there when the sums are.
                    for row in 0..rows {
                        simd::fetch(c.wrapping_add(row * self.c_stride), width);
                    }
                    micro::tile(
                        simd,
                        rows,
                        width,
                        self.depth,
                        a,
                        b,
                        panel,
                        c,
                        self.c_stride,
                        self.base.after_columns(first_column),
                        soon,
                    );
                }
            }
        }
    }
}

thread_local! {
    static PACKED_A: Scratch = const { RefCell::new(Vec::new()) };
    static KEPT: Cell<Kept> = const { Cell::new(Kept { part: None, numbers: Vec::new() }) };
}

/// What a thread has packed of B: the next piece may need the same.
#[derive(Default)]
struct Kept {
    /// Of which term which columns and which depth, and how wide the blocks are; nothing at first.
    part: Option<(usize, Range<usize>, Range<usize>, usize)>,
    numbers: Vec<f32>,
}

impl Kept {
    fn make_room(&mut self, size: usize) {
        if self.numbers.len() < size {
            self.numbers.resize(size, 0.0);
        }
    }
}
