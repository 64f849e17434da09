//! Losses and gradients against the naive reference, its gradients against finite differences, and rejected inputs.

use super::*;
use crate::checks::{
    assert_close_or_nan, assert_gradients_close, few_cases, finite_differences,
    on_each_instruction_set, panic_message, random_values, shapes, to_f64,
};
use attentive_testing::{Scale, assert_close};
use proptest::prelude::*;

fn check(logits: &[f32], targets: &[i64], vocabulary: usize, label_smoothing: f32) {
    let label_smoothing64 = f64::from(label_smoothing);
    let losses64 = naive::cross_entropy(&to_f64(logits), targets, vocabulary, label_smoothing64);
    let dlogits64 =
        naive::cross_entropy_backward(&to_f64(logits), targets, vocabulary, label_smoothing64, 0.5);
    on_each_instruction_set(|| {
        let rows = targets.len();
        let [mut losses, mut max, mut exp_sums] = [(); 3].map(|()| vec![f32::NAN; rows]);
        CrossEntropyForward {
            logits,
            targets,
            vocabulary,
            label_smoothing,
            losses: &mut losses,
            max: &mut max,
            exp_sums: &mut exp_sums,
        }
        .run();
        assert_close_or_nan("losses", &losses, &losses64, 2e-6);
        let mut dlogits = vec![f32::NAN; logits.len()];
        CrossEntropyBackward {
            logits,
            targets,
            vocabulary,
            label_smoothing,
            max: &max,
            exp_sums: &exp_sums,
            scale: 0.5,
            dlogits: &mut dlogits,
        }
        .run();
        assert_close_or_nan("dlogits", &dlogits, &dlogits64, 4e-6);
    });
}

/// Targets all over the vocabulary, some of them ignored.
fn targets(seed: u64, rows: usize, vocabulary: usize) -> Vec<i64> {
    (0..rows as u64)
        .map(|row| match (seed ^ row) % 5 {
            0 => IGNORE_INDEX,
            _ => ((seed >> 8).wrapping_add(row * 31) % vocabulary as u64) as i64,
        })
        .collect()
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn losses_and_gradients_equal_the_naive_reference(
        (rows, vocabulary) in shapes(),
        seed: u64,
        scale in 0.1f32..20.0,
        label_smoothing in prop::sample::select(vec![0.0f32, 0.1]),
    ) {
        let logits: Vec<f32> =
            random_values(seed, rows * vocabulary).iter().map(|x| x * scale).collect();
        check(&logits, &targets(seed, rows, vocabulary), vocabulary, label_smoothing);
    }
}

/// Gradients keep their relative precision, however large the logits. (The tolerances of `check` are relative to one.)
#[test]
fn logits_far_from_zero_keep_their_precision() {
    let (vocabulary, targets) = (BLOCK + 5, [3, BLOCK as i64]);
    for (offset, label_smoothing) in [(0.0, 0.1), (500.0, 0.0), (-500.0, 0.1), (30_000.0, 0.1)] {
        let logits: Vec<f32> =
            (random_values(7, 2 * vocabulary).iter().map(|x| x + offset)).collect();
        check(&logits, &targets, vocabulary, label_smoothing);
        let expected = naive::cross_entropy_backward(
            &to_f64(&logits),
            &targets,
            vocabulary,
            f64::from(label_smoothing),
            1e4,
        );
        let [mut losses, mut max, mut exp_sums] = [[0.0; 2]; 3];
        CrossEntropyForward {
            logits: &logits,
            targets: &targets,
            vocabulary,
            label_smoothing,
            losses: &mut losses,
            max: &mut max,
            exp_sums: &mut exp_sums,
        }
        .run();
        let mut dlogits = vec![0.0; logits.len()];
        CrossEntropyBackward {
            logits: &logits,
            targets: &targets,
            vocabulary,
            label_smoothing,
            max: &max,
            exp_sums: &exp_sums,
            scale: 1e4,
            dlogits: &mut dlogits,
        }
        .run();
        assert_close("dlogits", &dlogits, &expected, Scale::EachOrOne, 4e-6);
    }
}

#[test]
fn infinities_and_nan_propagate_as_in_pytorch() {
    let vocabulary = 2 * BLOCK + 3;
    let mut logits = random_values(5, 6 * vocabulary);
    let rows: Vec<&mut [f32]> = logits.chunks_mut(vocabulary).collect();
    let [masked, nan, infinite, partly_masked, late_max, ignored] = rows.try_into().unwrap();
    masked.fill(f32::NEG_INFINITY);
    nan[BLOCK + 1] = f32::NAN;
    infinite[7] = f32::INFINITY;
    partly_masked[..BLOCK].fill(f32::NEG_INFINITY);
    late_max[vocabulary - 1] = 80.0;
    ignored.fill(f32::NAN);
    check(
        &logits,
        &[0, 1, 2, BLOCK as i64, 3, IGNORE_INDEX],
        vocabulary,
        0.0,
    );
    let [mut losses, mut max, mut exp_sums] = [[1.0; 6]; 3];
    let targets = [0, 1, 2, 3, 4, IGNORE_INDEX];
    CrossEntropyForward {
        logits: &logits,
        targets: &targets,
        vocabulary,
        label_smoothing: 0.0,
        losses: &mut losses,
        max: &mut max,
        exp_sums: &mut exp_sums,
    }
    .run();
    assert!(losses[..3].iter().all(|loss| loss.is_nan()));
    assert_eq!(losses[3], f32::INFINITY);
    assert_eq!([losses[5], max[5], exp_sums[5]], [0.0; 3]);
}

#[test]
fn the_gradient_matches_finite_differences() {
    let (logits, targets) = (to_f64(&random_values(6, 28)), [3, IGNORE_INDEX, 0, 6]);
    for label_smoothing in [0.0, 0.2] {
        let found = naive::cross_entropy_backward(&logits, &targets, 7, label_smoothing, 1.5);
        let loss = |x: &[f64]| {
            1.5 * naive::cross_entropy(x, &targets, 7, label_smoothing)
                .iter()
                .sum::<f64>()
        };
        assert_gradients_close("dlogits", &found, &finite_differences(&logits, loss));
    }
}

#[test]
fn unknown_targets_and_mismatched_sizes_are_refused() {
    let call = |targets: &[i64], logits: usize| {
        let rows = targets.len();
        let logits = vec![0.0; logits];
        CrossEntropyForward {
            logits: &logits,
            targets,
            vocabulary: 3,
            label_smoothing: 0.0,
            losses: &mut vec![0.0; rows],
            max: &mut vec![0.0; rows],
            exp_sums: &mut vec![0.0; rows],
        }
        .run();
    };
    let message = panic_message(|| call(&[0, 3], 6));
    assert!(message.contains("the target 3 of row 1 is not in a vocabulary of 3"));
    assert!(panic_message(|| call(&[-1], 3)).contains("the target -1"));
    assert!(panic_message(|| call(&[1], 4)).contains("logits has 4 values instead of 3"));
}
