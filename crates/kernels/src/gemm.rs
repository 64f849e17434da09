//! Matrix products: packed panels, blocks that fit the caches, and work on the result while it is still in cache.
//!
//! ```text
//!            columns of B, in panels of 16          C is cut into a grid of pieces, one task each, so that nobody waits
//!          ┌────┬────┬────┬────┐                    for anybody until the end. A task packs KC rows of its columns of
//!   A      │    │    │    │    │ KC                 B, then runs the tile over all pairs of panels: a panel of B stays
//! ┌──┬──┐  └────┴────┴────┴────┘                    in the first cache, MC rows of A in the second, and packed B in
//! │MC│  │  ┌────┬────┬────┬────┐                    the third. A is read in place where its rows follow each other,
//! ├──┼──┤  │ C: finished after the last KC │        and otherwise packed in panels of 6 rows.
//! ```
//!
//! Every number of C is a sum in the same order, however C is cut. After Goto and van de Geijn 2008.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::micro::{self, Onto, View};
use crate::pack::pack_panels;
use crate::simd::{self, Instructions};
use crate::threads;

/// Rows of A that meet a block of B at a time, a multiple of the tile's.
const MC: usize = 192;
/// The largest depth of a packed block: a panel of B of this depth fits into the first cache.
const KC: usize = 384;
/// Columns of B that are packed at a time, a multiple of every tile's.
const NC: usize = 1024;
/// The largest depth of B that is packed at a time, in blocks of at most KC: rows of C stay in the second cache meanwhile.
const DEEP: usize = 4 * KC;
/// So many results stay in the second cache anyway, and one block of B at a time does too.
const FEW_RESULTS: usize = 1 << 17;
/// Columns that are finished at a time: with MC rows they still are in the second cache.
const STRIP: usize = 256;

/// A matrix to read: rows and columns anywhere in a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix whose rows follow each other.
    ///
    /// # Panics
    /// When the slice has another size.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(
            data.len(),
            rows * columns,
            "matrix: {} numbers are not {rows} rows of {columns}",
            data.len()
        );
        Self {
            data,
            rows,
            columns,
            row_stride: columns,
            column_stride: 1,
        }
    }

    /// The same numbers with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    fn view(&self, row: usize, column: usize) -> View {
        View {
            start: &raw const self.data[row * self.row_stride + column * self.column_stride],
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }
}

/// `C (+)= A · B`, with C's rows following each other; `finish(first row, first column, row of results)` is called once for
/// each finished piece of a row, while it is still in cache.
///
/// # Panics
/// When the shapes do not fit.
pub fn gemm(
    a: Matrix,
    b: Matrix,
    c: &mut [f32],
    onto: Onto,
    finish: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    let (rows, depth, columns) = (a.rows, a.columns, b.columns);
    assert!(
        depth == b.rows && c.len() == rows * columns,
        "gemm: {rows}×{depth} by {}×{columns} does not give {} numbers",
        b.rows,
        c.len()
    );
    if rows == 0 || columns == 0 {
        return;
    }
    if depth == 0 {
        if onto == Onto::Replace {
            c.fill(0.0);
        }
        for (row, values) in c.chunks_mut(columns).enumerate() {
            finish(row, 0, values);
        }
        return;
    }
    let instructions = simd::instructions();
    let panel = simd::run(instructions, PanelWidth);
    let grid = Grid::new(rows, columns, depth, panel);
    let target = Target {
        start: c.as_mut_ptr(),
        columns,
    };
    threads::each(grid.pieces(), |piece| {
        let piece = Piece {
            instructions,
            panel,
            a,
            b,
            onto,
            rows: grid.rows(piece),
            columns: grid.columns(piece),
            target,
        };
        piece.multiply(&finish);
    });
}

/// How C is shared out: pieces of whole tiles, all but the last of a row or column equally large.
#[derive(Clone, Copy, Debug)]
struct Grid {
    size: [usize; 2],
    piece: [usize; 2],
    across: usize,
    down: usize,
}

impl Grid {
    fn new(rows: usize, columns: usize, depth: usize, panel: usize) -> Self {
        let of = |down: usize, across: usize| {
            let piece = [
                rows.div_ceil(down).next_multiple_of(micro::ROWS),
                columns.div_ceil(across).next_multiple_of(panel),
            ];
            Self {
                size: [rows, columns],
                piece,
                down: rows.div_ceil(piece[0]),
                across: columns.div_ceil(piece[1]),
            }
        };
        let threads = threads::count();
        // A piece should be worth the trouble. Very large products get two per thread, so that a thread that is held up
        // does not hold up all.
        let most = (rows * columns * depth) >> 16;
        let wanted = if most >= (threads << 14) {
            2 * threads
        } else {
            threads.min(most)
        };
        let grids = (1..=wanted.max(1)).map(|down| of(down, wanted.div_ceil(down).max(1)));
        grids
            .min_by_key(|grid| grid.cost(threads))
            .expect("there is at least one grid")
    }

    /// An estimate of time: the tiles of the thread with most pieces, and what its pieces pack.
    fn cost(&self, threads: usize) -> usize {
        let [rows, columns] = self.piece;
        // In sixteenths of a cycle per unit of depth: a vector of products, and a packed number, take half a cycle. Rows
        // count as packed even where A is read in place: it keeps pieces from lying side by side in short rows, where one
        // thread's prefetches take the lines that the other writes.
        let piece = rows * columns + 8 * (rows + columns);
        self.pieces().div_ceil(threads) * piece
    }

    fn pieces(&self) -> usize {
        self.across * self.down
    }

    fn rows(&self, piece: usize) -> Range<usize> {
        let first = piece / self.across * self.piece[0];
        first..self.size[0].min(first + self.piece[0])
    }

    fn columns(&self, piece: usize) -> Range<usize> {
        let first = piece % self.across * self.piece[1];
        first..self.size[1].min(first + self.piece[1])
    }
}

/// Where C is. Tasks write to disjoint pieces of it.
#[derive(Clone, Copy)]
struct Target {
    start: *mut f32,
    columns: usize,
}

// SAFETY: each task writes only to its own piece.
unsafe impl Send for Target {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// The element must lie inside C.
    #[inline(always)]
    unsafe fn at(self, row: usize, column: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.start.add(row * self.columns + column) }
    }
}

/// The work of one task: some rows of A by some columns of B.
struct Piece<'a> {
    instructions: Instructions,
    /// Columns of a panel.
    panel: usize,
    a: Matrix<'a>,
    b: Matrix<'a>,
    onto: Onto,
    rows: Range<usize>,
    columns: Range<usize>,
    target: Target,
}

impl Piece<'_> {
    fn multiply(&self, finish: &impl Fn(usize, usize, &mut [f32])) {
        let depth = self.a.columns;
        // Equal blocks: a thin last one would read and write all of C for little.
        let deep = depth.div_ceil(depth.div_ceil(KC));
        let wide = NC.min(self.columns.len()).next_multiple_of(self.panel);
        let packs_a = self.a.column_stride != 1;
        let tall = MC.min(self.rows.len()).next_multiple_of(micro::ROWS);
        let size_of_a = if packs_a { deep * tall } else { 0 };
        let results = self.rows.len() * self.columns.len();
        let deepest = match results > FEW_RESULTS {
            true => depth.min(DEEP / deep * deep),
            false => deep,
        };
        with_scratch(&PACKED, deepest * wide + size_of_a, |packed| {
            let (packed_b, packed_a) = packed.split_at_mut(deepest * wide);
            for columns in cut(self.columns.clone(), NC) {
                for far in cut(0..depth, deepest) {
                    let blocks = || cut(far.clone(), deep).zip(0..);
                    for (depths, block) in blocks() {
                        let packed_b = &mut packed_b[block * deep * wide..];
                        self.pack_b(depths, columns.clone(), packed_b);
                    }
                    for rows in cut(self.rows.clone(), MC) {
                        for (depths, block) in blocks() {
                            let a = match packs_a {
                                true => self.pack_a(rows.clone(), depths.clone(), packed_a),
                                false => self.a.view(rows.start, depths.start),
                            };
                            let packed_b = &packed_b[block * deep * wide..];
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
                self.panel,
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
        finish: &impl Fn(usize, usize, &mut [f32]),
    ) {
        let last = depths.end == self.a.columns;
        let onto = if depths.start == 0 {
            self.onto
        } else {
            Onto::Add
        };
        let panel_stride = match self.a.column_stride {
            1 => micro::ROWS * a.row_stride,
            _ => micro::ROWS * depths.len(),
        };
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
                onto,
            };
            simd::run(self.instructions, tiles);
            if last {
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

/// The number of columns of a panel.
pub(crate) struct PanelWidth;

impl WithSimd for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        micro::columns::<S>()
    }
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
    onto: Onto,
}

impl WithSimd for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let panel = micro::columns::<S>();
        for first_column in (0..self.width).step_by(panel) {
            let b = self.packed_b[first_column * self.depth..].as_ptr();
            let mut a = self.a;
            for first_row in (0..self.rows).step_by(micro::ROWS) {
                // SAFETY: the panel of B was packed to `depth`, the rows of A lie inside it or its packed panels, and the
                // tile of C lies inside the rows and columns of this block.
                unsafe {
                    let c = self.c.add(first_row * self.c_stride + first_column);
                    micro::tile(
                        simd,
                        micro::ROWS.min(self.rows - first_row),
                        panel.min(self.width - first_column),
                        self.depth,
                        a,
                        b,
                        panel,
                        c,
                        self.c_stride,
                        self.onto,
                    );
                }
                a.start = a.start.wrapping_add(self.panel_stride);
            }
        }
    }
}

type Scratch = RefCell<Vec<Vec<f32>>>;

thread_local! {
    static PACKED: Scratch = const { RefCell::new(Vec::new()) };
}

/// Lends a buffer of this thread; a kernel that calls another finds a second one.
pub(crate) fn with_scratch<T>(
    scratch: &'static std::thread::LocalKey<Scratch>,
    size: usize,
    work: impl FnOnce(&mut [f32]) -> T,
) -> T {
    let mut buffer = scratch.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < size {
        buffer.resize(size, 0.0);
    }
    let result = work(&mut buffer[..size]);
    scratch.with_borrow_mut(|held| held.push(buffer));
    result
}

/// The specification: one number at a time.
pub fn gemm_naive(a: Matrix, b: Matrix, c: &mut [f32], onto: Onto) {
    for row in 0..a.rows {
        for column in 0..b.columns {
            let product = |k: usize| {
                f64::from(a.data[row * a.row_stride + k * a.column_stride])
                    * f64::from(b.data[k * b.row_stride + column * b.column_stride])
            };
            let sum: f64 = (0..a.columns).map(product).sum();
            let place = &mut c[row * b.columns + column];
            *place = match onto {
                Onto::Replace => sum as f32,
                Onto::Add => (f64::from(*place) + sum) as f32,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::with_instructions;
    use proptest::prelude::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0)
            .collect()
    }

    fn check(
        rows: usize,
        depth: usize,
        columns: usize,
        a_turned: bool,
        b_turned: bool,
        onto: Onto,
    ) {
        let (a_data, b_data) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
        let matrix = |data, rows, columns, turned| match turned {
            true => Matrix::new(data, columns, rows).transposed(),
            false => Matrix::new(data, rows, columns),
        };
        let a = matrix(&a_data, rows, depth, a_turned);
        let b = matrix(&b_data, depth, columns, b_turned);
        let mut expected = numbers(rows * columns, 3);
        let before = expected.clone();
        gemm_naive(a, b, &mut expected, onto);
        for instructions in [Instructions::Native, Instructions::Scalar] {
            let mut c = before.clone();
            with_instructions(instructions, || {
                gemm(a, b, &mut c, onto, |row, column, values| {
                    for (i, value) in values.iter_mut().enumerate() {
                        *value += (row * 1000 + column + i) as f32;
                    }
                });
            });
            for (i, (ours, theirs)) in c.iter().zip(&expected).enumerate() {
                let finished = theirs + (i / columns * 1000 + i % columns) as f32;
                let tolerance = 1e-5 * (depth as f32).sqrt().max(1.0) + 1e-6 * finished.abs();
                assert!(
                    (ours - finished).abs() <= tolerance,
                    "{instructions:?} {rows}×{depth}×{columns} at {i}: {ours} for {finished}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn equals_its_twin(
            rows in prop_oneof![Just(0), Just(1), Just(5), Just(6), Just(7), 1usize..40, Just(97), Just(193)],
            depth in prop_oneof![Just(0), Just(1), 1usize..40, Just(KC - 1), Just(KC), Just(KC + 1)],
            columns in prop_oneof![Just(0), Just(1), Just(15), Just(16), Just(17), 1usize..70],
            a_turned: bool,
            b_turned: bool,
            add: bool,
        ) {
            let onto = if add { Onto::Add } else { Onto::Replace };
            check(rows, depth, columns, a_turned, b_turned, onto);
        }
    }

    #[test]
    fn wide_products_take_several_blocks() {
        check(13, 300, NC + 33, false, true, Onto::Add);
    }

    #[test]
    fn deep_products_walk_the_depth_for_some_rows_at_a_time() {
        // Up to two threads, more results than `FEW_RESULTS` in each piece, and more depth than is packed at a time.
        check(1100, DEEP + KC + 5, 265, false, true, Onto::Replace);
        check(MC + 7, KC + 5, 33, true, true, Onto::Add);
        check(97, DEEP + 1, 33, true, false, Onto::Add);
    }
}
