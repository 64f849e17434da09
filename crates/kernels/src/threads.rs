//! Work spread over rayon's threads, split in places that do not depend on scheduling.

use rayon::prelude::*;

/// The smallest piece of elementwise work worth handing to another thread, in numbers.
pub const GRAIN: usize = 1 << 14;

/// How many threads share the work.
pub fn count() -> usize {
    rayon::current_num_threads()
}

/// Calls `work(row range start, rows)` on equal parts of `data`, a matrix of rows of `width` numbers.
///
/// The parts depend only on the sizes, so that sums over a part do too.
pub fn rows<T: Send>(data: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if data.is_empty() || width == 0 {
        return;
    }
    let rows = data.len() / width;
    let rows_per_part = GRAIN.div_ceil(width).max(1);
    if rows <= rows_per_part || count() == 1 {
        work(0, data);
        return;
    }
    data.par_chunks_mut(rows_per_part * width)
        .enumerate()
        .for_each(|(part, rows)| work(part * rows_per_part, rows));
}
