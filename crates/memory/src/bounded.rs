//! Running code whose cost a file from a stranger decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::allocator::{ABANDONED, EXCEEDED, RUNNING, with_bound};

/// How often the bounds are looked at while the work goes on.
const POLL: Duration = Duration::from_millis(5);

/// What work may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes allocated and not freed; enforced in programs whose allocator is [`BoundedAllocator`](crate::BoundedAllocator).
    pub memory: u64,
    /// Bytes of the stack; only used pages take memory.
    pub stack: usize,
    /// Time.
    pub time: Duration,
}

/// Why work was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// It needs more memory.
    #[error("it takes more than {} MB of memory", .0 >> 20)]
    Memory(u64),
    /// It takes longer.
    #[error("it takes longer than {} seconds", .0.as_secs())]
    Time(Duration),
    /// It panicked.
    #[error("it ended unexpectedly")]
    Panic,
    /// The system starts no thread for it.
    #[error("there is no memory for its stack of {} MB", .0 >> 20)]
    Stack(usize),
}

/// Runs `work` on a thread of its own, within `bounds`. A thread that exceeds them is left behind: it keeps what it has
/// allocated, and stops at its next allocation.
pub fn run_bounded<T: Send + 'static>(
    bounds: Bounds,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Exceeded> {
    let state = Arc::new(AtomicU8::new(RUNNING));
    let (sender, receiver) = sync_channel(1);
    let started = Instant::now();
    let of_thread = state.clone();
    let thread = thread::Builder::new().stack_size(bounds.stack);
    let thread = thread.spawn(move || {
        let result = with_bound(bounds.memory, &of_thread, work);
        // The receiver is gone if the time is up.
        let _ = sender.send(result);
    });
    if thread.is_err() {
        return Err(Exceeded::Stack(bounds.stack));
    }
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(Exceeded::Panic),
            Err(RecvTimeoutError::Timeout) if state.load(Ordering::Acquire) == EXCEEDED => {
                return Err(Exceeded::Memory(bounds.memory));
            }
            Err(RecvTimeoutError::Timeout) if started.elapsed() >= bounds.time => {
                state.store(ABANDONED, Ordering::Release);
                return Err(Exceeded::Time(bounds.time));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
