//! Buffers of one step kept for the next.
//!
//! A training step frees as many numbers as it asks for, in the same sizes as the step before. Going through the allocator,
//! every large buffer would be given back to the system and fetched again, page by page, and cleared twice over: a
//! seventh of a step was spent on that. Operations hand in what they consumed ([`recycle`], [`keep`]) and take what they
//! need ([`buffer`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::flex::FlexTensor;

/// Smaller buffers are left to the allocator, which is quick with them.
const SMALLEST: usize = 1 << 10;

/// A buffer that nobody asked for during so many takes is let go: longer than the longest step.
const PATIENCE: u64 = 8192;

/// From so many takes to the next, nobody looks for such buffers.
const INTERVAL: u64 = 512;

#[derive(Default)]
struct Shelf {
    /// By length; each with the number of the take at which it came back.
    held: HashMap<usize, Vec<(u64, Vec<f32>)>>,
    takes: u64,
    /// The take at which old buffers were last looked for.
    looked: u64,
}

static SHELF: Mutex<Option<Shelf>> = Mutex::new(None);

fn with_shelf<T>(work: impl FnOnce(&mut Shelf) -> T) -> T {
    let mut shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
    work(shelf.get_or_insert_default())
}

/// A buffer of this length whose numbers may be anything: for kernels that write all of it.
pub(crate) fn buffer(length: usize) -> Vec<f32> {
    if length < SMALLEST {
        return vec![0.0; length];
    }
    let found = with_shelf(|shelf| {
        shelf.takes += 1;
        shelf.held.get_mut(&length).and_then(Vec::pop)
    });
    match found {
        Some((_, buffer)) => buffer,
        None => vec![0.0; length],
    }
}

/// Keeps the memory of tensors that were used for the last time, unless somebody else still holds it.
pub(crate) fn recycle(tensors: impl IntoIterator<Item = FlexTensor>) {
    for tensor in tensors {
        let storage = tensor.data_arc();
        drop(tensor);
        let bytes = Arc::try_unwrap(storage).ok();
        if let Some(numbers) = bytes.and_then(|bytes| bytes.try_into_vec::<f32>().ok()) {
            keep(numbers);
        }
    }
}

/// Keeps a buffer that was used for the last time.
pub(crate) fn keep(numbers: Vec<f32>) {
    if numbers.len() < SMALLEST {
        return;
    }
    let dropped = with_shelf(|shelf| {
        let now = shelf.takes;
        shelf
            .held
            .entry(numbers.len())
            .or_default()
            .push((now, numbers));
        // Now and then: what has been lying too long goes. It is freed after the lock.
        let mut dropped = Vec::new();
        if now - shelf.looked >= INTERVAL {
            shelf.looked = now;
            for held in shelf.held.values_mut() {
                dropped.extend(held.extract_if(.., |(since, _)| now - *since > PATIENCE));
            }
            shelf.held.retain(|_, held| !held.is_empty());
        }
        dropped
    });
    drop(dropped);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tensor;

    #[test]
    fn memory_comes_back_unless_somebody_holds_it() {
        // A length that no other test asks for.
        let length = SMALLEST + 77;
        let first = tensor(vec![1.0; length], [length]);
        let place = first.bytes().as_ptr();
        let held = first.clone();
        recycle([first]);
        let other = buffer(length);
        assert_ne!(other.as_ptr().cast(), place, "still held");
        recycle([held]);
        let again = buffer(length);
        assert_eq!(again.as_ptr().cast(), place, "free again");
    }
}
