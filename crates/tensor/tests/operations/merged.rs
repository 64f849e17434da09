//! Attention to the keys in several sets, merged, against attention to all of them at once: values and gradients of all
//! inputs, also where a set or all of them hold nothing for a query.

use attentive_tensor::{
    Attended, Device, Int, Mask, ScoreBias, Scores, Tensor, attention_with_log_sums, merge_attended,
};

use crate::ours::numbers;

/// Numbers that differ from each other.
fn leaf(shape: [usize; 4], seed: f64, device: &Device) -> Tensor<4> {
    let count = shape.iter().product::<usize>() as i64;
    let numbers = Tensor::<1, Int>::arange(0..count, device).float();
    (numbers * 0.7 + seed).sin().reshape(shape).require_grad()
}

/// A loss that depends on every number of both results; log-sums of minus infinity count nothing.
fn loss(attended: &Attended) -> Tensor<1> {
    let count = attended.context.shape().num_elements() as i64;
    let weights = Tensor::<1, Int>::arange(0..count, &attended.context.device()).float();
    let weights = (weights * 0.3).cos().reshape(attended.context.dims());
    let empty = attended.log_sums.clone().equal_scalar(f32::NEG_INFINITY);
    let log_sums = attended.log_sums.clone().mask_fill(empty, 0.0);
    let weighed = log_sums * weights.clone().narrow(3, 0, 1).squeeze_dim(3);
    (attended.context.clone() * weights).sum() + weighed.sum()
}

fn assert_close(what: &str, ours: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (i, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        let same =
            ours == expected || (ours - expected).abs() <= tolerance * (1.0 + expected.abs());
        assert!(same, "{what}: number {i} is {ours} instead of {expected}");
    }
}

/// Values and gradients of both, for the same leaves.
fn compare(what: &str, leaves: &[Tensor<4>], merged: Attended, whole: Attended) {
    let results = |attended: Attended| {
        let gradients = loss(&attended).backward();
        let slopes: Vec<Vec<f64>> = leaves
            .iter()
            .map(|leaf| numbers(leaf.grad(&gradients).unwrap()))
            .collect();
        let values = [numbers(attended.context), numbers(attended.log_sums)];
        (values, slopes)
    };
    let ((values, slopes), (whole_values, whole_slopes)) = (results(merged), results(whole));
    for (ours, expected) in values.iter().zip(&whole_values) {
        assert_close(what, ours, expected, 1e-5);
    }
    for (ours, expected) in slopes.iter().zip(&whole_slopes) {
        assert!(ours.iter().all(|it| it.is_finite()), "{what}");
        assert_close(&format!("{what}, gradient"), ours, expected, 1e-4);
    }
}

#[test]
fn keys_cut_in_two_are_as_good_as_whole() {
    let device = Device::flex().autodiff();
    for (queries, keys, first) in [(5, 9, 4), (1, 7, 1), (53, 200, 131), (3, 6, 6), (3, 6, 0)] {
        let leaves = [
            leaf([2, 4, queries, 6], 0.0, &device),
            leaf([2, 2, keys, 6], 1.0, &device),
            leaf([2, 2, keys, 3], 2.0, &device),
        ];
        let attend = |from: usize, count: usize| {
            let [query, key, value] = leaves.clone();
            let (key, value) = (key.narrow(2, from, count), value.narrow(2, from, count));
            let scores = Scores::new(Mask::none(), 0.7);
            attention_with_log_sums(query, key, value, &scores, 0.0, None)
        };
        // A set without keys is one that nobody sees.
        let parts = [(0, first), (first, keys - first)];
        let parts = parts.into_iter().filter(|(_, count)| *count > 0);
        let merged = merge_attended(parts.map(|(from, count)| attend(from, count)).collect());
        let what = format!("{queries} by {keys}, cut at {first}");
        compare(&what, &leaves, merged, attend(0, keys));
    }
}

/// Key masks as biases of minus infinity: of the two sequences, one set holds nothing of the first, and both nothing of the
/// second.
#[test]
fn sets_that_hold_nothing_have_no_weight_and_no_gradient() {
    let device = Device::flex().autodiff();
    let leaves = [
        leaf([2, 2, 5, 4], 0.0, &device),
        leaf([2, 2, 6, 4], 1.0, &device),
        leaf([2, 2, 6, 4], 2.0, &device),
    ];
    let attend = |seen: [[bool; 6]; 2]| {
        let [query, key, value] = leaves.clone();
        let bias = seen.map(|row| [row.map(|it| if it { 0.25 } else { f32::NEG_INFINITY })]);
        let scores = Scores {
            bias: Some(ScoreBias::Keys(Tensor::from_data(bias, &device))),
            ..Scores::new(Mask::none(), 0.7)
        };
        attention_with_log_sums(query, key, value, &scores, 0.0, None)
    };
    let some = [false, true, false, true, true, false];
    let none = [false; 6];
    let parts = vec![attend([none, none]), attend([some, none])];
    let merged = merge_attended(parts);
    let log_sums = numbers(merged.log_sums.clone());
    assert!(log_sums[..10].iter().all(|it| it.is_finite()));
    assert_eq!(log_sums[10..], [f64::NEG_INFINITY; 10]);
    assert!(
        numbers(merged.context.clone())[40..]
            .iter()
            .all(|it| *it == 0.0)
    );
    compare("nothing in a set", &leaves, merged, attend([some, none]));
}
