//! Products that are deep and have few results, as gradients of weights are: one task multiplies the first half of the depth,
//! another the second, and whoever is last adds the two up. A thread then packs only half of both factors, and mostly rows
//! that it wrote itself.
//!
//! Whether a product is halved depends on its sizes alone, so its bits do not depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::grid::Grid;
use super::{Matrix, Nothing, Product};
use crate::Onto;
use crate::elementwise::AddTo;
use crate::simd;
use crate::threads::{self, Work};

/// So many results can be added up in the second cache.
const RESULTS: usize = 1 << 17;
/// Less depth is not worth a second pass over the results.
const DEPTH: usize = 256;

/// Memory for second halves, kept for the next product.
static BUFFERS: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new());

/// A product of two halves.
pub(crate) struct Halves<'a> {
    halves: [Product<'a, Nothing>; 2],
    /// Whether a half of a piece is done, per piece.
    done: Vec<AtomicBool>,
    /// The second half's results, which its product points to.
    second: Vec<f32>,
}

impl<'a> Halves<'a> {
    /// Whether a product of these sizes is halved.
    pub fn fit(rows: usize, depth: usize, columns: usize) -> bool {
        rows > 0 && columns > 0 && depth >= DEPTH && rows * columns <= RESULTS
    }

    /// `C = A · B`.
    ///
    /// # Panics
    /// When the shapes do not fit.
    pub fn new(a: Matrix<'a>, b: Matrix<'a>, c: &'a mut [f32]) -> Self {
        Self::with_threads(a, b, c, threads::count())
    }

    /// The same in pieces for so many threads.
    pub(super) fn with_threads(
        a: Matrix<'a>,
        b: Matrix<'a>,
        c: &'a mut [f32],
        threads: usize,
    ) -> Self {
        let middle = a.columns / 2;
        let held = BUFFERS.lock().ok().and_then(|mut held| held.pop());
        let mut second = held.unwrap_or_default();
        second.resize(c.len(), 0.0);
        let ([a, more_a], [b, more_b]) = (a.split_columns(middle), b.split_rows(middle));
        let threads = threads.div_ceil(2);
        let first = Product::with_threads([(a, b)], c, Onto::Replace, super::NOTHING, threads);
        // SAFETY: the buffer lives as long as the product, in the same struct, where nobody uses it but through the product's
        // pointer until both are gone.
        let target = unsafe { std::slice::from_raw_parts_mut(second.as_mut_ptr(), second.len()) };
        let terms = [(more_a, more_b)];
        let mut later =
            Product::with_threads(terms, target, Onto::Replace, super::NOTHING, threads);
        // An odd depth makes one half deeper, and by itself that could be cut otherwise.
        later.grid = first.grid;
        let pieces = first.grid.pieces();
        Self {
            halves: [first, later],
            done: (0..pieces).map(|_| AtomicBool::new(false)).collect(),
            second,
        }
    }

    /// Fills the buffer with what no sum survives.
    #[cfg(test)]
    pub(super) fn spoil(&mut self) {
        let target = self.halves[1].target;
        for index in 0..self.second.len() {
            // SAFETY: the index lies inside the buffer, and no task runs yet.
            unsafe { *target.start.add(index) = f32::NAN };
        }
    }

    fn grid(&self) -> &Grid {
        &self.halves[0].grid
    }
}

impl Work for Halves<'_> {
    fn tasks(&self) -> usize {
        2 * self.grid().pieces()
    }

    unsafe fn run(&self, task: usize) {
        let pieces = self.grid().pieces();
        let (half, piece) = (task / pieces, task % pieces);
        // SAFETY: each task is another piece of another half.
        unsafe { self.halves[half].run(piece) };
        if !self.done[piece].swap(true, Ordering::AcqRel) {
            return;
        }
        let columns = self.grid().columns(piece);
        let rows = |half: usize, row: usize| {
            // SAFETY: the row lies inside the results.
            unsafe { self.halves[half].target.at(row, columns.start) }
        };
        for row in self.grid().rows(piece) {
            // SAFETY: both halves of this piece are done, and nobody else adds them up.
            let kernel = unsafe {
                AddTo {
                    sums: std::slice::from_raw_parts_mut(rows(0, row), columns.len()),
                    more: std::slice::from_raw_parts(rows(1, row), columns.len()),
                }
            };
            simd::run(self.halves[0].instructions, kernel);
        }
    }
}

impl Drop for Halves<'_> {
    fn drop(&mut self) {
        if let Ok(mut held) = BUFFERS.lock() {
            held.push(std::mem::take(&mut self.second));
        }
    }
}
