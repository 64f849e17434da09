//! Matrix products: packed panels, blocks that fit the caches, and work on the result while it is still in cache.
//!
//! ```text
//!            columns of B, in panels of 16          KC rows of B are packed at a time, by all threads together;
//!          ┌────┬────┬────┬────┐                    then each thread takes blocks of MC rows of A, packs them in
//!   A      │    │    │    │    │ KC                 panels of 6 rows, and runs the tile over all pairs of panels.
//! ┌──┬──┐  └────┴────┴────┴────┘                    A panel of B stays in the first cache, the block of A in the
//! │MC│  │  ┌────┬────┬────┬────┐                    second, and all of packed B in the third.
//! ├──┼──┤  │ C: finished after the last KC │
//! ```
//!
//! After Goto and van de Geijn 2008.

use std::cell::RefCell;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::micro::{self, Onto, View};
use crate::simd::{self, Instructions};
use crate::threads;

/// Rows of A that are packed at a time, a multiple of the tile's.
const MC: usize = 96;
/// Depth of a packed block: a panel of B of this depth fills half of the first cache.
const KC: usize = 256;
/// Columns of B that are packed at a time, a multiple of every tile's.
const NC: usize = 4096;

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
    let target = Target {
        start: c.as_mut_ptr(),
        columns,
    };
    with_scratch(
        &PACKED_B,
        KC.min(depth) * NC.min(columns).next_multiple_of(panel),
        |packed_b| {
            for first_column in (0..columns).step_by(NC) {
                let width = NC.min(columns - first_column);
                for first_depth in (0..depth).step_by(KC) {
                    let block = Block {
                        instructions,
                        panel,
                        depth: KC.min(depth - first_depth),
                        first_depth,
                        first_column,
                        width,
                        onto: if first_depth == 0 { onto } else { Onto::Add },
                        last: first_depth + KC >= depth,
                    };
                    block.pack_b(b, packed_b);
                    block.multiply(a, packed_b, target, &finish);
                }
            }
        },
    );
}

/// Where C is. Threads write to disjoint rows of it.
#[derive(Clone, Copy)]
struct Target {
    start: *mut f32,
    columns: usize,
}

// SAFETY: each task writes only to its own rows.
unsafe impl Send for Target {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for Target {}

/// One packed block of B and what it is multiplied with.
#[derive(Clone, Copy)]
struct Block {
    instructions: Instructions,
    /// Columns of a panel.
    panel: usize,
    depth: usize,
    first_depth: usize,
    first_column: usize,
    width: usize,
    onto: Onto,
    /// Whether C is finished after this block.
    last: bool,
}

impl Block {
    /// Packs the block into panels of `panel` columns, row after row; missing columns are zeros.
    fn pack_b(self, b: Matrix, packed: &mut [f32]) {
        let size = self.panel * self.depth;
        let used = &mut packed[..self.width.div_ceil(self.panel) * size];
        let pack = |(index, out): (usize, &mut [f32])| {
            let column = index * self.panel;
            let width = self.panel.min(self.width - column);
            let view = b.view(self.first_depth, self.first_column + column);
            // SAFETY: the view starts inside `b` and the piece does not reach beyond its rows and columns.
            unsafe { pack(view, self.depth, width, self.panel, out) };
        };
        if used.len() < threads::GRAIN {
            used.chunks_mut(size).enumerate().for_each(pack);
        } else {
            used.par_chunks_mut(size).enumerate().for_each(pack);
        }
    }

    fn multiply(
        self,
        a: Matrix,
        packed_b: &[f32],
        target: Target,
        finish: &(impl Fn(usize, usize, &mut [f32]) + Sync),
    ) {
        // Enough blocks for every thread to have work until the end, whole tiles each.
        let share = a
            .rows
            .div_ceil(2 * threads::count())
            .next_multiple_of(micro::ROWS);
        let step = share.min(MC);
        let task = |index: usize| {
            let first_row = index * step;
            let rows = step.min(a.rows - first_row);
            self.multiply_rows(a, first_row, rows, packed_b, target);
            if self.last {
                for row in first_row..first_row + rows {
                    // SAFETY: this task alone writes to these rows, and the piece lies inside row `row`.
                    let values = unsafe {
                        let start = target.start.add(row * target.columns + self.first_column);
                        std::slice::from_raw_parts_mut(start, self.width)
                    };
                    finish(row, self.first_column, values);
                }
            }
        };
        let tasks = a.rows.div_ceil(step);
        if a.rows * self.width * self.depth < 1 << 16 {
            (0..tasks).for_each(task);
        } else {
            (0..tasks).into_par_iter().with_max_len(1).for_each(task);
        }
    }

    fn multiply_rows(
        self,
        a: Matrix,
        first_row: usize,
        rows: usize,
        packed_b: &[f32],
        target: Target,
    ) {
        let size = rows.next_multiple_of(micro::ROWS) * self.depth;
        with_scratch(&PACKED_A, size, |packed_a| {
            for (index, out) in packed_a.chunks_mut(micro::ROWS * self.depth).enumerate() {
                let row = index * micro::ROWS;
                let height = micro::ROWS.min(rows - row);
                let view = a.view(first_row + row, self.first_depth);
                let turned = View {
                    row_stride: view.column_stride,
                    column_stride: view.row_stride,
                    ..view
                };
                // SAFETY: the view starts inside `a` and the piece does not reach beyond its rows and columns.
                unsafe { pack(turned, self.depth, height, micro::ROWS, out) };
            }
            // SAFETY: the piece of C starts inside it.
            let c = unsafe {
                target
                    .start
                    .add(first_row * target.columns + self.first_column)
            };
            simd::run(
                self.instructions,
                Tiles {
                    packed_a,
                    packed_b,
                    block: self,
                    rows,
                    c,
                    c_stride: target.columns,
                },
            );
        });
    }
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

/// All tiles of a block of rows.
struct Tiles<'a> {
    packed_a: &'a [f32],
    packed_b: &'a [f32],
    block: Block,
    rows: usize,
    c: *mut f32,
    c_stride: usize,
}

impl WithSimd for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Block {
            panel,
            depth,
            width,
            onto,
            ..
        } = self.block;
        for first_column in (0..width).step_by(panel) {
            let b = self.packed_b[first_column * depth..].as_ptr();
            for first_row in (0..self.rows).step_by(micro::ROWS) {
                let a = View {
                    start: self.packed_a[first_row * depth..].as_ptr(),
                    row_stride: 1,
                    column_stride: micro::ROWS,
                };
                // SAFETY: both panels were packed to `depth`, padded to whole tiles, and the tile of C lies inside the
                // rows and columns of this block.
                unsafe {
                    let c = self.c.add(first_row * self.c_stride + first_column);
                    micro::tile(
                        simd,
                        micro::ROWS.min(self.rows - first_row),
                        panel.min(width - first_column),
                        depth,
                        a,
                        b,
                        panel,
                        c,
                        self.c_stride,
                        onto,
                    );
                }
            }
        }
    }
}

/// Copies `rows` rows of `width` numbers into rows of `padded` numbers, filled up with zeros.
///
/// # Safety
/// The view must be readable for `rows` by `width`.
unsafe fn pack(view: View, rows: usize, width: usize, padded: usize, out: &mut [f32]) {
    if view.column_stride == 1 {
        for (row, out) in out.chunks_exact_mut(padded).enumerate().take(rows) {
            // SAFETY: the caller's promise.
            let from = unsafe { std::slice::from_raw_parts(view.at(row, 0), width) };
            out[..width].copy_from_slice(from);
            out[width..].fill(0.0);
        }
        return;
    }
    if width < padded {
        out[..rows * padded].fill(0.0);
    }
    // Here the numbers of a column follow each other: a transposition, done in short runs of rows so that the lines
    // written to stay in cache.
    const RUN: usize = 16;
    for first in (0..rows).step_by(RUN) {
        let count = RUN.min(rows - first);
        for column in 0..width {
            // SAFETY: the caller's promise.
            unsafe {
                let mut from = view.at(first, column);
                let mut to = first * padded + column;
                for _ in 0..count {
                    *out.get_unchecked_mut(to) = *from;
                    from = from.wrapping_add(view.row_stride);
                    to += padded;
                }
            }
        }
    }
}

type Scratch = RefCell<Vec<Vec<f32>>>;

thread_local! {
    static PACKED_A: Scratch = const { RefCell::new(Vec::new()) };
    static PACKED_B: Scratch = const { RefCell::new(Vec::new()) };
}

/// Lends a buffer of this thread. A thread that waits for its tasks may be given another product's task meanwhile, so
/// there is a stack of buffers.
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
            depth in prop_oneof![Just(0), Just(1), 1usize..40, Just(255), Just(256), Just(257)],
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
}
