//! How many threads there are, and how much work is worth handing to one.

/// The smallest piece of elementwise work worth handing to another thread, in numbers.
pub const GRAIN: usize = 1 << 14;

/// How many threads share the work.
pub fn count() -> usize {
    rayon::current_num_threads()
}
