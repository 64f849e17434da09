//! Activations and gates against their naive twins, at the ends of the numbers, and what is refused.

use super::*;
use crate::checks::{close, close_slopes, each_way, few, lengths, numbers, panic_of, slopes, wide};
use proptest::prelude::*;

fn check(kind: Activation, gate: &[f32], up: &[f32], dy: &[f32]) {
    let values: Vec<f64> = wide(gate).iter().map(|x| naive::value(kind, *x)).collect();
    let slopes: Vec<f64> = wide(gate).iter().map(|x| naive::slope(kind, *x)).collect();
    let product =
        |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a * b).collect() };
    let (up64, dy64) = (wide(up), wide(dy));
    each_way(|| {
        let fresh = || vec![f32::NAN; gate.len()];
        let (mut y, mut dx, mut gated_y, mut dgate, mut dup) =
            (fresh(), fresh(), fresh(), fresh(), fresh());
        activate(kind, gate, &mut y);
        activate_backward(kind, gate, dy, &mut dx);
        gated(kind, gate, up, &mut gated_y);
        gated_backward(kind, gate, up, dy, &mut dgate, &mut dup);
        close("y", &y, &values, 1e-6);
        close("dx", &dx, &product(&slopes, &dy64), 2e-6);
        close("gated", &gated_y, &product(&values, &up64), 2e-6);
        close(
            "dgate",
            &dgate,
            &product(&slopes, &product(&up64, &dy64)),
            4e-6,
        );
        close("dup", &dup, &product(&values, &dy64), 2e-6);
    });
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn functions_and_gates_are_the_twins(
        length in lengths(),
        seed: u64,
        kind in prop::sample::select(KINDS.to_vec()),
        size in 0.01f32..20.0,
    ) {
        let gate: Vec<f32> = numbers(seed, length).iter().map(|x| x * size).collect();
        check(kind, &gate, &numbers(!seed, length), &numbers(seed ^ 7, length));
    }
}

#[test]
fn slopes_are_finite_differences() {
    let x = [-5.0, -1.5, -0.7, -0.1, 0.1, 0.9, 1.3, 2.0, 7.0];
    for kind in KINDS {
        let sum = |x: &[f64]| x.iter().map(|x| naive::value(kind, *x)).sum();
        let found = x.map(|x| naive::slope(kind, x));
        close_slopes(&format!("{kind:?}"), &found, &slopes(&x, sum));
    }
}

#[test]
fn infinities_and_nan_pass_as_in_pytorch() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0];
    let values = |kind| {
        let mut y = [1.0; 4];
        activate(kind, &x, &mut y);
        y
    };
    each_way(|| {
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
        // PyTorch passes the gradient where the input is NaN, and none where ReLU is off.
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
fn other_lengths_are_refused() {
    let message = panic_of(|| gated(Activation::Silu, &[0.0], &[0.0], &mut []));
    assert!(
        message.contains("gated: argument 3 has 0 numbers"),
        "{message}"
    );
}
