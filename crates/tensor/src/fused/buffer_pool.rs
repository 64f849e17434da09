//! A process-wide pool of f32 buffers, by length.
//!
//! A training step frees and allocates the same buffers as the step before. The system allocator would return the large
//! ones to the kernel and fault them in again, zeroed twice: a seventh of a step's time. Instead, operations release what
//! they consumed ([`recycle`], [`release`]) and take what they need ([`buffer`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::flex::FlexTensor;

/// Shorter buffers are left to the allocator, which is fast for them.
const MIN_LENGTH: usize = 1 << 10;

/// A buffer that stayed unused for this many acquisitions is freed: more than the longest step makes.
const MAX_IDLE: u64 = 8192;

/// Acquisitions between two sweeps for idle buffers.
const SWEEP_INTERVAL: u64 = 512;

#[derive(Default)]
struct BufferPool {
    /// Free buffers by length, each with the acquisition count at its release.
    free: HashMap<usize, Vec<(u64, Vec<f32>)>>,
    acquisitions: u64,
    /// The acquisition count at the last sweep.
    last_sweep: u64,
}

static POOL: Mutex<Option<BufferPool>> = Mutex::new(None);

fn with_pool<T>(work: impl FnOnce(&mut BufferPool) -> T) -> T {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    work(pool.get_or_insert_default())
}

/// A buffer of this length with arbitrary contents, for kernels that overwrite all of it.
pub(crate) fn buffer(length: usize) -> Vec<f32> {
    if length < MIN_LENGTH {
        return vec![0.0; length];
    }
    let found = with_pool(|pool| {
        pool.acquisitions += 1;
        pool.free.get_mut(&length).and_then(Vec::pop)
    });
    match found {
        Some((_, buffer)) => buffer,
        None => vec![0.0; length],
    }
}

/// Releases the storage of tensors that are no longer needed, unless it is shared.
pub(crate) fn recycle(tensors: impl IntoIterator<Item = FlexTensor>) {
    for tensor in tensors {
        let storage = tensor.data_arc();
        drop(tensor);
        let bytes = Arc::try_unwrap(storage).ok();
        if let Some(buffer) = bytes.and_then(|bytes| bytes.try_into_vec::<f32>().ok()) {
            release(buffer);
        }
    }
}

/// Returns a buffer to the pool.
pub(crate) fn release(buffer: Vec<f32>) {
    if buffer.len() < MIN_LENGTH {
        return;
    }
    let expired = with_pool(|pool| {
        let now = pool.acquisitions;
        pool.free
            .entry(buffer.len())
            .or_default()
            .push((now, buffer));
        let mut expired = Vec::new();
        if now - pool.last_sweep >= SWEEP_INTERVAL {
            pool.last_sweep = now;
            for buffers in pool.free.values_mut() {
                expired.extend(buffers.extract_if(.., |(since, _)| now - *since > MAX_IDLE));
            }
            pool.free.retain(|_, buffers| !buffers.is_empty());
        }
        expired
    });
    // Freed after the lock is released.
    drop(expired);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tensor;

    #[test]
    fn storage_is_reused_unless_it_is_shared() {
        // A length that no other test uses.
        let length = MIN_LENGTH + 77;
        let first = tensor(vec![1.0; length], [length]);
        let address = first.bytes().as_ptr();
        let shared = first.clone();
        recycle([first]);
        let other = buffer(length);
        assert_ne!(other.as_ptr().cast(), address, "still shared");
        recycle([shared]);
        let again = buffer(length);
        assert_eq!(again.as_ptr().cast(), address, "free again");
    }
}
