//! Work whose cost a file from a stranger decides, such as rendering a chat template: it gets so much memory, stack and time.
//!
//! Memory is bounded in programs whose global allocator is a [`BoundedAllocator`]; stack and time are bounded in all.

mod allocator;
mod bounded;

pub use allocator::BoundedAllocator;
pub use bounded::{Bounds, Exceeded, run_bounded};
