//! Products that are deep and have few results, as gradients of weights are: one task multiplies the first half of the depth,
//! another the second, and whoever is last adds the two up. A thread then packs only half of both factors, and mostly rows
//! that it wrote itself.
//!
//! Whether a product is halved depends on its sizes alone, so its bits do not depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::grid::Grid;
use super::{Finish, Matrix, Product};
use crate::Onto;
use crate::elementwise;
use crate::threads::{self, Work};

/// So many results can be added up in the second cache.
const RESULTS: usize = 1 << 17;
/// Less depth is not worth a second pass over the results.
const DEPTH: usize = 256;

/// Memory for second halves, kept for the next product.
static BUFFERS: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new());

/// A product of two halves.
pub(crate) struct Halves<'a> {
    halves: [Product<'a, Finish>; 2],
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
        let middle = a.columns / 2;
        let held = BUFFERS.lock().ok().and_then(|mut held| held.pop());
        let mut second = held.unwrap_or_default();
        second.resize(c.len(), 0.0);
        let ([a, more_a], [b, more_b]) = (a.split_columns(middle), b.split_rows(middle));
        let threads = threads::count().div_ceil(2);
        let first = Product::with_threads([(a, b)], c, Onto::Replace, super::NOTHING, threads);
        // SAFETY: the buffer lives as long as the product, in the same struct, and nobody else looks at it before both
        // halves of a piece are done.
        let target = unsafe { std::slice::from_raw_parts_mut(second.as_mut_ptr(), second.len()) };
        let terms = [(more_a, more_b)];
        let later = Product::with_threads(terms, target, Onto::Replace, super::NOTHING, threads);
        let pieces = first.grid.pieces();
        Self {
            halves: [first, later],
            done: (0..pieces).map(|_| AtomicBool::new(false)).collect(),
            second,
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

    fn run(&self, task: usize) {
        let pieces = self.grid().pieces();
        let (half, piece) = (task / pieces, task % pieces);
        self.halves[half].run(piece);
        if !self.done[piece].swap(true, Ordering::AcqRel) {
            return;
        }
        let columns = self.grid().columns(piece);
        let target = self.halves[0].target;
        for row in self.grid().rows(piece) {
            let start = row * target.columns + columns.start;
            // SAFETY: both halves of this piece are done, and nobody else adds them up.
            let sums = unsafe {
                std::slice::from_raw_parts_mut(target.at(row, columns.start), columns.len())
            };
            elementwise::add_assign(sums, &self.second[start..start + columns.len()]);
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
