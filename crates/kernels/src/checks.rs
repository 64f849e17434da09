//! What the tests of all kernels share: inputs, comparisons, slopes by finite differences.

use crate::simd::{self, with_instructions};
use proptest::prelude::*;

/// Numbers between -3 and 3 that depend on the seed (SplitMix64).
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    (0..count)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            ((z >> 40) as f32 / (1 << 24) as f32 - 0.5) * 6.0
        })
        .collect()
}

/// The same numbers with more digits, for the naive twins.
pub(crate) fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|x| f64::from(*x)).collect()
}

/// Fails where numbers are further apart than the tolerance allows, relative to 1 or to the expected one.
#[track_caller]
pub(crate) fn close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found = f64::from(*found);
        let apart = (found - expected).abs() / expected.abs().max(1.0);
        let same = found == *expected || (found.is_nan() && expected.is_nan());
        assert!(
            same || apart <= tolerance,
            "{what} at {index}: {found} for {expected}"
        );
    }
}

/// Fails where sums are further apart than the tolerance allows, relative to the sizes of what was summed: terms that cancel
/// out leave what rounding lost of each, so that the sums themselves say nothing about what may be lost.
#[track_caller]
pub(crate) fn close_sums(
    what: &str,
    found: &[f32],
    expected: &[f64],
    sizes: &[f64],
    tolerance: f64,
) {
    assert_eq!(found.len(), expected.len(), "{what}");
    assert_eq!(found.len(), sizes.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let size = sizes[index];
        assert!(
            (f64::from(*found) - expected).abs() <= tolerance * size,
            "{what} at {index}: {found} for {expected}, a sum of {size} by size"
        );
    }
}

/// Runs the check with all instructions that the processor has, and without vectors.
pub(crate) fn each_way(check: impl Fn()) {
    for &instructions in simd::available() {
        with_instructions(instructions, &check);
    }
}

/// The gradient of a function by central differences.
pub(crate) fn slopes(at: &[f64], function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let mut at = at.to_vec();
    (0..at.len())
        .map(|index| {
            let centre = at[index];
            at[index] = centre + step;
            let above = function(&at);
            at[index] = centre - step;
            let below = function(&at);
            at[index] = centre;
            (above - below) / (2.0 * step)
        })
        .collect()
}

/// Fails where a gradient differs from its finite differences.
#[track_caller]
pub(crate) fn close_slopes(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() < 1e-6 * expected.abs().max(1.0),
            "{what} at {index}: {found} for {expected}"
        );
    }
}

/// The inner product: what turns many outputs into the one that a gradient is taken of.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rows and widths that are hard to get right: none, one, primes, one more or less than the lanes, several parts.
pub(crate) fn shapes() -> impl Strategy<Value = (usize, usize)> {
    let rows = prop::sample::select(vec![0, 1, 2, 3, 7, 13]);
    let widths = prop::sample::select(vec![
        1, 2, 3, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 384,
    ]);
    let large = prop::sample::select(vec![(257, 65), (1031, 17), (50, 384), (2, 20_011)]);
    prop_oneof![4 => (rows, widths), 1 => large]
}

/// Lengths that are hard to get right.
pub(crate) fn lengths() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![
        0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 16_384, 16_385, 40_009,
    ])
}

/// Fewer cases than proptest's own choice: these tests are many.
pub(crate) fn few() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The message that a call panics with.
pub(crate) fn panic_of(call: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(call).expect_err("the call should panic");
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |message| (*message).to_owned()),
    }
}
