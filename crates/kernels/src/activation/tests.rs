//! Activations and gates against their naive versions, infinities and NaN, and refused lengths.

use super::*;
use crate::checks::{
    assert_gradients_close, few_cases, finite_differences, lengths, on_each_instruction_set,
    panic_message, random_values, to_f64,
};
use attentive_testing::{Scale, assert_close};
use proptest::prelude::*;

fn check(kind: Activation, gate: &[f32], up: &[f32], dy: &[f32]) {
    let values: Vec<f64> = to_f64(gate)
        .iter()
        .map(|x| naive::value(kind, *x))
        .collect();
    let derivatives: Vec<f64> = to_f64(gate)
        .iter()
        .map(|x| naive::derivative(kind, *x))
        .collect();
    let product =
        |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a * b).collect() };
    let (up64, dy64) = (to_f64(up), to_f64(dy));
    on_each_instruction_set(|| {
        let [mut y, mut dx, mut gated_y, mut dgate, mut dup] =
            [(); 5].map(|()| vec![f32::NAN; gate.len()]);
        activate(kind, gate, &mut y);
        activate_backward(kind, gate, dy, &mut dx);
        gated(kind, gate, up, &mut gated_y);
        gated_backward(kind, gate, up, dy, &mut dgate, &mut dup);
        assert_close("y", &y, &values, Scale::EachOrOne, 1e-6);
        assert_close(
            "dx",
            &dx,
            &product(&derivatives, &dy64),
            Scale::EachOrOne,
            2e-6,
        );
        assert_close(
            "gated",
            &gated_y,
            &product(&values, &up64),
            Scale::EachOrOne,
            2e-6,
        );
        assert_close(
            "dgate",
            &dgate,
            &product(&derivatives, &product(&up64, &dy64)),
            Scale::EachOrOne,
            4e-6,
        );
        assert_close(
            "dup",
            &dup,
            &product(&values, &dy64),
            Scale::EachOrOne,
            2e-6,
        );
    });
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn functions_and_gates_match_the_naive_version(
        length in lengths(),
        seed: u64,
        kind in prop::sample::select(KINDS.to_vec()),
        scale in 0.01f32..20.0,
    ) {
        let gate: Vec<f32> = random_values(seed, length).iter().map(|x| x * scale).collect();
        check(kind, &gate, &random_values(!seed, length), &random_values(seed ^ 7, length));
    }
}

#[test]
fn derivatives_match_finite_differences() {
    let x = [-5.0, -1.5, -0.7, -0.1, 0.1, 0.9, 1.3, 2.0, 7.0];
    for kind in KINDS {
        let sum = |x: &[f64]| x.iter().map(|x| naive::value(kind, *x)).sum();
        let found = x.map(|x| naive::derivative(kind, x));
        assert_gradients_close(&format!("{kind:?}"), &found, &finite_differences(&x, sum));
    }
}

#[test]
fn infinities_and_nan_propagate_as_in_pytorch() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    let values = |kind| {
        let mut y = [1.0; 4];
        activate(kind, &x, &mut y);
        y
    };
    on_each_instruction_set(|| {
        let [nan, high, low, zero] = values(Activation::Relu);
        assert!(nan.is_nan());
        assert_eq!((high, low, zero), (f32::INFINITY, 0.0, 0.0));
        for kind in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
            let [nan, high, low, zero] = values(kind);
            assert!(nan.is_nan() && low.is_nan(), "{kind:?}");
            assert_eq!((high, zero), (f32::INFINITY, 0.0));
        }
        let [nan, high, low, zero] = values(Activation::Sigmoid);
        assert!(nan.is_nan());
        assert_eq!((high, low, zero), (1.0, 0.0, 0.5));
        // As in PyTorch, the gradient passes where the input is NaN, and is zero where ReLU is off.
        let mut dx = [0.0; 4];
        activate_backward(
            Activation::Relu,
            &x,
            &[3.0, 3.0, f32::INFINITY, 3.0],
            &mut dx,
        );
        assert_eq!(dx, [3.0, 3.0, 0.0, 0.0]);
    });
}

#[test]
fn mismatched_lengths_are_refused() {
    let message = panic_message(|| gated(Activation::Silu, &[0.0], &[0.0], &mut []));
    assert!(
        message.contains("gated: argument 3 has 0 values"),
        "{message}"
    );
}
