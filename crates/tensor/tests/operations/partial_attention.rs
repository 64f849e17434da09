//! Attention to disjoint sets of keys, merged, against attention to their union: values, and the gradients of all inputs,
//! also where some or all sets have no visible key for a query.

use attentive_tensor::{
    Device, Int, Mask, PartialAttention, ScoreBias, Scores, Tensor, attention_with_log_sum_exp,
    merge_partial_attention,
};
use attentive_testing::{GRADIENTS, Scale, VALUES, assert_close};

use crate::runner::values;

/// Values that differ from each other.
fn leaf(shape: [usize; 4], seed: f64, device: &Device) -> Tensor<4> {
    let count = shape.iter().product::<usize>() as i64;
    let values = Tensor::<1, Int>::arange(0..count, device).float();
    (values * 0.7 + seed).sin().reshape(shape).require_grad()
}

/// A loss that depends on every element of both results, except for log-sum-exps of minus infinity.
fn loss(attended: &PartialAttention) -> Tensor<1> {
    let count = attended.context.shape().num_elements() as i64;
    let weights = Tensor::<1, Int>::arange(0..count, &attended.context.device()).float();
    let weights = (weights * 0.3).cos().reshape(attended.context.dims());
    let empty = attended.log_sum_exp.clone().equal_scalar(f32::NEG_INFINITY);
    let log_sum_exp = attended.log_sum_exp.clone().mask_fill(empty, 0.0);
    let weighted = log_sum_exp * weights.clone().narrow(3, 0, 1).squeeze_dim(3);
    (attended.context.clone() * weights).sum() + weighted.sum()
}

/// Values and gradients of both, for the same leaves.
fn compare(what: &str, leaves: &[Tensor<4>], merged: PartialAttention, whole: PartialAttention) {
    let results = |attended: PartialAttention| {
        let all = loss(&attended).backward();
        let gradients: Vec<Vec<f64>> = leaves
            .iter()
            .map(|leaf| values(leaf.grad(&all).unwrap()))
            .collect();
        let values = [values(attended.context), values(attended.log_sum_exp)];
        (values, gradients)
    };
    let ((values, gradients), (whole_values, whole_gradients)) = (results(merged), results(whole));
    for (ours, expected) in values.iter().zip(&whole_values) {
        assert_close(what, ours, expected, Scale::EachOrOne, VALUES);
    }
    for (ours, expected) in gradients.iter().zip(&whole_gradients) {
        assert!(ours.iter().all(|it| it.is_finite()), "{what}");
        let what = format!("{what}, gradient");
        assert_close(what, ours, expected, Scale::EachOrOne, GRADIENTS);
    }
}

#[test]
fn merging_two_sets_of_keys_equals_attention_to_all() {
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
            attention_with_log_sum_exp(query, key, value, &scores, 0.0, None)
        };
        // A set without keys contributes nothing.
        let parts = [(0, first), (first, keys - first)];
        let parts = parts.into_iter().filter(|(_, count)| *count > 0);
        let merged =
            merge_partial_attention(parts.map(|(from, count)| attend(from, count)).collect());
        let what = format!("{queries} by {keys}, cut at {first}");
        compare(&what, &leaves, merged, attend(0, keys));
    }
}

/// Key masks as biases of minus infinity: of the first sequence, one set has no visible key; of the second, neither has.
#[test]
fn sets_without_visible_keys_have_no_weight_and_no_gradient() {
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
        attention_with_log_sum_exp(query, key, value, &scores, 0.0, None)
    };
    let some = [false, true, false, true, true, false];
    let none = [false; 6];
    let parts = vec![attend([none, none]), attend([some, none])];
    let merged = merge_partial_attention(parts);
    let log_sum_exp = values(merged.log_sum_exp.clone());
    assert!(log_sum_exp[..10].iter().all(|it| it.is_finite()));
    assert_eq!(log_sum_exp[10..], [f64::NEG_INFINITY; 10]);
    assert!(
        values(merged.context.clone())[40..]
            .iter()
            .all(|it| *it == 0.0)
    );
    compare("nothing in a set", &leaves, merged, attend([some, none]));
}
