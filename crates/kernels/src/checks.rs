//! Shared by the tests of all kernels: random inputs, finite differences, comparisons.

use crate::gemm::KC;
use crate::simd::{self, with_instructions};
use attentive_testing::{Scale, assert_close, ulps_of_sum};
use proptest::prelude::*;

/// Pseudorandom values between -3 and 3 (SplitMix64).
pub(crate) fn random_values(seed: u64, count: usize) -> Vec<f32> {
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

/// The values in double precision, for the naive versions.
pub(crate) fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// Pseudorandom values between -1 and 1.
pub(crate) fn unit_values(seed: u64, count: usize) -> Vec<f32> {
    let values = random_values(seed, count).into_iter();
    values.map(|x| x / 3.0).collect()
}

/// What the rounding errors of sums of this many products of two [`unit_values`] are relative to: their standard deviation, since a
/// product has a variance of 1/9, or the sum itself where it is larger. Where a sum cancels, its partial sums were as large. An
/// initial value has the variance of three products.
pub(crate) fn scales_of_sums(sums: &[f64], products: usize) -> Vec<f64> {
    let std = ((products + 3) as f64).sqrt() / 3.0;
    sums.iter().map(|sum| sum.abs().max(std)).collect()
}

/// Fails unless these are sums of this many products of two [`unit_values`], and an initial value, up to rounding errors. GEMM
/// adds up at most [`KC`] products before it adds their sum to the others. Partial sums of such blocks are shorter random walks than the
/// whole: their errors are those of a sum of as many terms as large as the whole.
#[track_caller]
pub(crate) fn assert_sums_close<A: Copy + Into<f64>>(
    what: &str,
    found: &[A],
    expected: &[f64],
    products: usize,
) {
    let scales = scales_of_sums(expected, products);
    let bound = ulps_of_sum(products.min(KC) + 3);
    assert_close(what, found, expected, Scale::Terms(&scales), bound);
}

/// Fails where values are not close, or where only one of the two is NaN.
#[track_caller]
pub(crate) fn assert_close_or_nan(what: &str, found: &[f32], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let pairs = found.iter().zip(expected);
    assert!(
        pairs.clone().all(|(a, b)| a.is_nan() == b.is_nan()),
        "{what}"
    );
    let (found, expected): (Vec<f32>, Vec<f64>) = pairs.filter(|(_, it)| !it.is_nan()).unzip();
    assert_close(what, &found, &expected, Scale::EachOrOne, bound);
}

/// Runs the check on each instruction set of this machine, and scalar.
pub(crate) fn on_each_instruction_set(check: impl Fn()) {
    for &instructions in simd::available() {
        with_instructions(instructions, &check);
    }
}

/// The gradient of a function by central differences.
pub(crate) fn finite_differences(at: &[f64], function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let mut at = at.to_vec();
    (0..at.len())
        .map(|index| {
            let center = at[index];
            at[index] = center + step;
            let above = function(&at);
            at[index] = center - step;
            let below = function(&at);
            at[index] = center;
            (above - below) / (2.0 * step)
        })
        .collect()
}

/// Fails where a gradient differs from its finite differences.
#[track_caller]
pub(crate) fn assert_gradients_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_close(what, found, expected, Scale::EachOrOne, 1e-6);
}

/// The inner product: reduces outputs to a scalar loss, for gradient checks.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Edge cases of rows and widths: none, one, primes, one more or less than the lanes, several parts.
pub(crate) fn shapes() -> impl Strategy<Value = (usize, usize)> {
    let rows = prop::sample::select(vec![0, 1, 2, 3, 7, 13]);
    let widths = prop::sample::select(vec![
        1, 2, 3, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 384,
    ]);
    let large = prop::sample::select(vec![(257, 65), (1031, 17), (50, 384), (2, 20_011)]);
    prop_oneof![4 => (rows, widths), 1 => large]
}

/// Edge cases of lengths.
pub(crate) fn lengths() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![
        0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 16_384, 16_385, 40_009,
    ])
}

/// Fewer cases than proptest's default, because there are many tests.
pub(crate) fn few_cases() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The message that a call panics with.
pub(crate) fn panic_message(call: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(call).expect_err("the call should panic");
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |message| (*message).to_owned()),
    }
}
