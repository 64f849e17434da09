//! Bounded work ends in its result or in an error that says which bound it exceeded.

use std::alloc::System;
use std::time::{Duration, Instant};

use attentive_memory::{BoundedAllocator, Bounds, Exceeded, run_bounded};

#[global_allocator]
static ALLOCATOR: BoundedAllocator<System> = BoundedAllocator(System);

const BOUNDS: Bounds = Bounds {
    memory: 8 << 20,
    stack: 1 << 20,
    time: Duration::from_secs(20),
};

/// A text that is doubled so many times.
fn doubled(times: u32) -> usize {
    let mut text = "ab".to_owned();
    for _ in 0..times {
        text = format!("{text}{text}");
    }
    text.len()
}

#[test]
fn work_within_its_bounds_gives_its_result() {
    assert_eq!(run_bounded(BOUNDS, || doubled(20)), Ok(2 << 20));
    // What is freed does not count.
    let freed = run_bounded(BOUNDS, || (0..100).map(|_| doubled(18)).max());
    assert_eq!(freed, Ok(Some(2 << 18)));
}

#[test]
fn work_that_wants_too_much_memory_is_given_up() {
    let exceeded = run_bounded(BOUNDS, || doubled(60));
    assert_eq!(exceeded, Err(Exceeded::Memory(8 << 20)));
    // Other threads, and later work, go on.
    assert_eq!(doubled(23), 2 << 23);
    assert_eq!(run_bounded(BOUNDS, || doubled(20)), Ok(2 << 20));
}

#[test]
fn work_that_takes_too_long_is_given_up() {
    let bounds = Bounds {
        time: Duration::from_millis(100),
        ..BOUNDS
    };
    let started = Instant::now();
    let exceeded = run_bounded(bounds, || {
        // Stops at the first allocation after the time is up.
        loop {
            doubled(2);
        }
    });
    assert_eq!(exceeded, Err(Exceeded::Time(bounds.time)));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_panic_is_an_error() {
    let panicked = run_bounded(BOUNDS, || -> u8 { panic!("as expected in this test") });
    assert_eq!(panicked, Err(Exceeded::Panic));
}
