//! A global allocator that bounds what a thread allocates.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The states of bounded work.
pub(crate) const RUNNING: u8 = 0;
/// It wanted more memory than it may have.
pub(crate) const EXCEEDED: u8 = 1;
/// Nobody waits for it any more.
pub(crate) const ABANDONED: u8 = 2;

/// What a bounded thread may still allocate, and the state of its work.
#[derive(Clone, Copy)]
struct Budget {
    left: i64,
    state: *const AtomicU8,
}

thread_local! {
    // Without a destructor, so that it can be read in any allocation.
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// Runs `work` on this thread while what it allocates and does not free is bounded. A thread that exceeds the bound, or whose
/// work is abandoned, says so in `state` and never runs again: an allocator can neither unwind nor fail without ending the
/// process.
pub(crate) fn with_bound<T>(bytes: u64, state: &AtomicU8, work: impl FnOnce() -> T) -> T {
    let left = i64::try_from(bytes).unwrap_or(i64::MAX);
    BUDGET.set(Some(Budget { left, state }));
    let _unbound = Unbound;
    work()
}

/// Lifts the bound, also where the work panics: the state is no longer borrowed.
struct Unbound;

impl Drop for Unbound {
    fn drop(&mut self) {
        BUDGET.set(None);
    }
}

/// Counts bytes; negative ones are freed. Stops a thread that may not go on.
fn count(bytes: i64) {
    // A thread that is ending has no thread-local values.
    let Ok(Some(budget)) = BUDGET.try_with(Cell::get) else {
        return;
    };
    // SAFETY: `with_bound` borrows the state while there is a budget; a thread that stops here never returns from it.
    #[allow(unsafe_code)]
    let state = unsafe { &*budget.state };
    let left = budget.left.saturating_sub(bytes);
    if left < 0 && bytes > 0 && !std::thread::panicking() {
        state.store(EXCEEDED, Ordering::Release);
    }
    // A thread that reports a panic holds locks which others need, and ends by itself.
    if state.load(Ordering::Relaxed) != RUNNING && !std::thread::panicking() {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    let _ = BUDGET.try_with(|cell| cell.set(Some(Budget { left, ..budget })));
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// An allocator that enforces the memory bound of [`run_bounded`](crate::run_bounded); other threads allocate as from the
/// inner allocator. A program makes it its `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoundedAllocator<A>(pub A);

// SAFETY: memory comes from the inner allocator, with the layouts that the caller gives.
#[allow(unsafe_code)]
unsafe impl<A: GlobalAlloc> GlobalAlloc for BoundedAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are those of the inner allocator.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are those of the inner allocator.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size).saturating_sub(signed(layout.size())));
        // SAFETY: the caller's promises are those of the inner allocator.
        unsafe { self.0.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's promises are those of the inner allocator.
        unsafe { self.0.dealloc(pointer, layout) }
    }
}
