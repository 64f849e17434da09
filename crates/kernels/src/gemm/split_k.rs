//! Split-K for deep products with a small C, such as weight gradients: one task multiplies the first half of the depth, another
//! the second, and whichever finishes last adds the two. Each thread then packs only half of both operands, mostly rows that it
//! wrote itself.
//!
//! Whether a product is split depends on its sizes alone, so results do not depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::grid::Grid;
use super::{Gemm, Matrix, NoEpilogue};
use crate::Init;
use crate::elementwise::AddAssignKernel;
use crate::simd;
use crate::threads::{self, TaskSet};

/// The largest C: both halves can be added in L2.
const MAX_OUTPUTS: usize = 1 << 17;
/// Less depth is not worth a second pass over C.
const MIN_DEPTH: usize = 256;

/// Buffers for the second halves, reused by later products.
static BUFFERS: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new());

/// A product whose depth is split into two halves.
pub(crate) struct SplitK<'a> {
    halves: [Gemm<'a, NoEpilogue>; 2],
    /// Whether one half is done, per block of C.
    half_done: Vec<AtomicBool>,
    /// The second half's partial sums, which its product points to.
    partial: Vec<f32>,
}

impl<'a> SplitK<'a> {
    /// Whether a product of these sizes is split.
    pub fn applies(rows: usize, depth: usize, columns: usize) -> bool {
        rows > 0 && columns > 0 && depth >= MIN_DEPTH && rows * columns <= MAX_OUTPUTS
    }

    /// `C = A · B`.
    ///
    /// # Panics
    /// When the shapes do not match.
    pub fn new(a: Matrix<'a>, b: Matrix<'a>, c: &'a mut [f32]) -> Self {
        Self::with_threads(a, b, c, threads::count())
    }

    /// The same, partitioned for a given number of threads.
    pub(super) fn with_threads(
        a: Matrix<'a>,
        b: Matrix<'a>,
        c: &'a mut [f32],
        threads: usize,
    ) -> Self {
        let middle = a.columns / 2;
        let reused = BUFFERS.lock().ok().and_then(|mut buffers| buffers.pop());
        let mut partial = reused.unwrap_or_default();
        partial.resize(c.len(), 0.0);
        let ([a1, a2], [b1, b2]) = (a.split_columns(middle), b.split_rows(middle));
        let threads = threads.div_ceil(2);
        let first = Gemm::with_threads([(a1, b1)], c, Init::Zero, super::NO_EPILOGUE, threads);
        // SAFETY: the buffer lives as long as the product, in the same struct, and is only accessed through the product's pointer
        // until both are dropped.
        let output = unsafe { std::slice::from_raw_parts_mut(partial.as_mut_ptr(), partial.len()) };
        let mut second =
            Gemm::with_threads([(a2, b2)], output, Init::Zero, super::NO_EPILOGUE, threads);
        // With an odd depth one half is deeper and might get another grid.
        second.grid = first.grid;
        let tasks = first.grid.tasks();
        Self {
            halves: [first, second],
            half_done: (0..tasks).map(|_| AtomicBool::new(false)).collect(),
            partial,
        }
    }

    /// Fills the buffer with NaN, so that a test sees stale values.
    #[cfg(test)]
    pub(super) fn poison(&mut self) {
        let output = self.halves[1].output;
        for index in 0..self.partial.len() {
            // SAFETY: the index lies inside the buffer, and no task runs yet.
            unsafe { *output.start.add(index) = f32::NAN };
        }
    }

    fn grid(&self) -> &Grid {
        &self.halves[0].grid
    }
}

impl TaskSet for SplitK<'_> {
    fn tasks(&self) -> usize {
        2 * self.grid().tasks()
    }

    unsafe fn run(&self, task: usize) {
        let blocks = self.grid().tasks();
        let (half, block) = (task / blocks, task % blocks);
        // SAFETY: each task is a different block of one of the halves.
        unsafe { self.halves[half].run(block) };
        if !self.half_done[block].swap(true, Ordering::AcqRel) {
            return;
        }
        let columns = self.grid().columns(block);
        let rows = |half: usize, row: usize| {
            // SAFETY: the row lies inside C.
            unsafe { self.halves[half].output.at(row, columns.start) }
        };
        for row in self.grid().rows(block) {
            // SAFETY: both halves of this block are done, and only the task that finished last adds them.
            let kernel = unsafe {
                AddAssignKernel {
                    x: std::slice::from_raw_parts_mut(rows(0, row), columns.len()),
                    y: std::slice::from_raw_parts(rows(1, row), columns.len()),
                }
            };
            simd::run(self.halves[0].instructions, kernel);
        }
    }
}

impl Drop for SplitK<'_> {
    fn drop(&mut self) {
        if let Ok(mut buffers) = BUFFERS.lock() {
            buffers.push(std::mem::take(&mut self.partial));
        }
    }
}
