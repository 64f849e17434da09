//! Norms against the naive reference, its gradients against finite differences, and rejected sizes.

use super::*;
use crate::checks::{
    assert_gradients_close, dot, few_cases, finite_differences, on_each_instruction_set,
    panic_message, random_values, shapes, to_f64,
};
use crate::threads;
use attentive_testing::{Scale, assert_close};
use proptest::prelude::*;

const EPSILON: f32 = 1e-5;

struct Inputs {
    x: Vec<f32>,
    residual: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    dy: Vec<f32>,
}

impl Inputs {
    fn new(rows: usize, width: usize, seed: u64) -> Self {
        Self {
            x: random_values(seed, rows * width),
            residual: random_values(seed ^ 1, rows * width),
            weight: random_values(seed ^ 2, width),
            bias: random_values(seed ^ 3, width),
            dy: random_values(seed ^ 4, rows * width),
        }
    }
}

/// Errors grow with the largest reciprocal standard deviation, and for sums over rows with the number of rows.
fn tolerances(expected: &naive::NormOutput) -> (f64, f64) {
    let one = 2e-5 * expected.rstd.iter().copied().fold(1.0, f64::max);
    (one, one * (expected.rstd.len() as f64).sqrt().max(1.0))
}

fn check_layer(inputs: &Inputs, rows: usize, has_bias: bool) {
    let Inputs {
        x,
        residual,
        weight,
        bias,
        dy,
    } = inputs;
    let bias = has_bias.then_some(bias.as_slice());
    let bias64 = bias.map(to_f64);
    let epsilon = f64::from(EPSILON);
    let expected = naive::layer_norm(&to_f64(x), &to_f64(weight), bias64.as_deref(), epsilon);
    let (row_tolerance, sum_tolerance) = tolerances(&expected);
    on_each_instruction_set(|| {
        let (mut y, mut mean, mut rstd) = (
            vec![f32::NAN; x.len()],
            vec![f32::NAN; rows],
            vec![f32::NAN; rows],
        );
        layer_norm(x, weight, bias, EPSILON, &mut y, &mut mean, &mut rstd);
        assert_close("y", &y, &expected.y, Scale::EachOrOne, row_tolerance);
        assert_close("mean", &mean, &expected.mean, Scale::EachOrOne, 1e-6);
        assert_close(
            "rstd",
            &rstd,
            &expected.rstd,
            Scale::EachOrOne,
            row_tolerance,
        );

        let gradients = naive::layer_norm_backward(
            &to_f64(dy),
            &to_f64(x),
            &to_f64(weight),
            &to_f64(&mean),
            &to_f64(&rstd),
        );
        let mut dx = vec![f32::NAN; x.len()];
        let (mut dweight, mut dbias) = (vec![f32::NAN; weight.len()], vec![f32::NAN; weight.len()]);
        let dbias_if_present = has_bias.then_some(dbias.as_mut_slice());
        layer_norm_backward(
            dy,
            None,
            x,
            weight,
            &mean,
            &rstd,
            &mut dx,
            &mut dweight,
            dbias_if_present,
        );
        assert_close("dx", &dx, &gradients.dx, Scale::EachOrOne, row_tolerance);
        assert_close(
            "dweight",
            &dweight,
            &gradients.dweight,
            Scale::EachOrOne,
            sum_tolerance,
        );
        if has_bias {
            assert_close(
                "dbias",
                &dbias,
                &gradients.dbias,
                Scale::EachOrOne,
                sum_tolerance,
            );
        }

        let (mut sum, mut sum_y) = (residual.clone(), vec![f32::NAN; x.len()]);
        add_layer_norm(
            x, weight, bias, EPSILON, &mut sum, &mut sum_y, &mut mean, &mut rstd,
        );
        let expected_sum: Vec<f32> = x.iter().zip(residual).map(|(a, b)| a + b).collect();
        assert_eq!(sum, expected_sum);
        layer_norm(
            &expected_sum,
            weight,
            bias,
            EPSILON,
            &mut y,
            &mut mean,
            &mut rstd,
        );
        assert_eq!(sum_y, y);
    });
}

fn check_rms(inputs: &Inputs, rows: usize, has_bias: bool) {
    let Inputs {
        x,
        residual,
        weight,
        bias,
        dy,
    } = inputs;
    let bias = has_bias.then_some(bias.as_slice());
    let bias64 = bias.map(to_f64);
    let epsilon = f64::from(EPSILON);
    let expected = naive::rms_norm(&to_f64(x), &to_f64(weight), bias64.as_deref(), epsilon);
    let (row_tolerance, sum_tolerance) = tolerances(&expected);
    on_each_instruction_set(|| {
        let (mut y, mut rstd) = (vec![f32::NAN; x.len()], vec![f32::NAN; rows]);
        rms_norm(x, weight, bias, EPSILON, &mut y, &mut rstd);
        assert_close("y", &y, &expected.y, Scale::EachOrOne, row_tolerance);
        assert_close(
            "rstd",
            &rstd,
            &expected.rstd,
            Scale::EachOrOne,
            row_tolerance,
        );

        let gradients =
            naive::rms_norm_backward(&to_f64(dy), &to_f64(x), &to_f64(weight), &to_f64(&rstd));
        let mut dx = vec![f32::NAN; x.len()];
        let (mut dweight, mut dbias) = (vec![f32::NAN; weight.len()], vec![f32::NAN; weight.len()]);
        let dbias_if_present = has_bias.then_some(dbias.as_mut_slice());
        rms_norm_backward(
            dy,
            None,
            x,
            weight,
            &rstd,
            &mut dx,
            &mut dweight,
            dbias_if_present,
        );
        assert_close("dx", &dx, &gradients.dx, Scale::EachOrOne, row_tolerance);
        if has_bias {
            assert_close(
                "dbias",
                &dbias,
                &gradients.dbias,
                Scale::EachOrOne,
                sum_tolerance,
            );
        }
        let without_residual = dx.clone();
        rms_norm_backward(
            dy,
            Some(residual),
            x,
            weight,
            &rstd,
            &mut dx,
            &mut dweight,
            None,
        );
        let with_residual: Vec<f32> = without_residual
            .iter()
            .zip(residual)
            .map(|(a, b)| a + b)
            .collect();
        assert_eq!(dx, with_residual);
        assert_close(
            "dweight",
            &dweight,
            &gradients.dweight,
            Scale::EachOrOne,
            sum_tolerance,
        );

        let (mut sum, mut sum_y) = (residual.clone(), vec![f32::NAN; x.len()]);
        add_rms_norm(x, weight, bias, EPSILON, &mut sum, &mut sum_y, &mut rstd);
        let expected_sum: Vec<f32> = x.iter().zip(residual).map(|(a, b)| a + b).collect();
        assert_eq!(sum, expected_sum);
        rms_norm(&expected_sum, weight, bias, EPSILON, &mut y, &mut rstd);
        assert_eq!(sum_y, y);
    });
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn norms_equal_the_naive_reference((rows, width) in shapes(), seed: u64, has_bias: bool) {
        let inputs = Inputs::new(rows, width, seed);
        check_layer(&inputs, rows, has_bias);
        check_rms(&inputs, rows, has_bias);
    }
}

#[test]
fn gradients_match_finite_differences() {
    let (rows, width, epsilon) = (3, 5, 1e-3);
    let inputs = Inputs::new(rows, width, 9);
    let [x, weight, bias, dy] =
        [&inputs.x, &inputs.weight, &inputs.bias, &inputs.dy].map(|values| to_f64(values));
    let layer = |x: &[f64], weight: &[f64], bias: &[f64]| {
        dot(&naive::layer_norm(x, weight, Some(bias), epsilon).y, &dy)
    };
    let forward = naive::layer_norm(&x, &weight, Some(&bias), epsilon);
    let found = naive::layer_norm_backward(&dy, &x, &weight, &forward.mean, &forward.rstd);
    assert_gradients_close(
        "dx",
        &found.dx,
        &finite_differences(&x, |x| layer(x, &weight, &bias)),
    );
    assert_gradients_close(
        "dweight",
        &found.dweight,
        &finite_differences(&weight, |w| layer(&x, w, &bias)),
    );
    assert_gradients_close(
        "dbias",
        &found.dbias,
        &finite_differences(&bias, |b| layer(&x, &weight, b)),
    );

    let rms = |x: &[f64], weight: &[f64]| dot(&naive::rms_norm(x, weight, None, epsilon).y, &dy);
    let forward = naive::rms_norm(&x, &weight, None, epsilon);
    let found = naive::rms_norm_backward(&dy, &x, &weight, &forward.rstd);
    assert_gradients_close(
        "dx",
        &found.dx,
        &finite_differences(&x, |x| rms(x, &weight)),
    );
    assert_gradients_close(
        "dweight",
        &found.dweight,
        &finite_differences(&weight, |w| rms(&x, w)),
    );
}

#[test]
fn the_variance_is_accurate_far_from_zero() {
    let x: Vec<f32> = random_values(1, 256).iter().map(|x| 1000.0 + x).collect();
    let weight = vec![1.0; 256];
    let expected = naive::layer_norm(&to_f64(&x), &to_f64(&weight), None, f64::from(EPSILON));
    on_each_instruction_set(|| {
        let (mut y, mut mean, mut rstd) = (vec![0.0; 256], [0.0], [0.0]);
        layer_norm(&x, &weight, None, EPSILON, &mut y, &mut mean, &mut rstd);
        assert_close("rstd", &rstd, &expected.rstd, Scale::EachOrOne, 1e-6);
        assert_close("y", &y, &expected.y, Scale::EachOrOne, 2e-4);
    });
}

#[test]
fn nan_and_infinity_propagate_only_within_their_row() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        on_each_instruction_set(|| {
            let mut x = random_values(1, 3 * 19);
            x[25] = bad;
            let (mut y, mut mean, mut rstd) = (vec![0.0; x.len()], [0.0; 3], [0.0; 3]);
            layer_norm(&x, &[1.0; 19], None, EPSILON, &mut y, &mut mean, &mut rstd);
            assert!(y[19..38].iter().all(|y| y.is_nan()));
            assert!(y[..19].iter().chain(&y[38..]).all(|y| y.is_finite()));
        });
    }
}

#[test]
fn gradients_do_not_depend_on_scheduling() {
    let (rows, width) = (1031, 65);
    let Inputs { x, weight, dy, .. } = Inputs::new(rows, width, 3);
    let run = || {
        let (mut dx, mut dweight) = (vec![0.0; x.len()], vec![0.0; width]);
        rms_norm_backward(
            &dy,
            None,
            &x,
            &weight,
            &vec![0.7; rows],
            &mut dx,
            &mut dweight,
            None,
        );
        (dx, dweight)
    };
    let once = threads::single_threaded(run);
    assert!((0..5).all(|_| run() == once));
}

#[test]
fn mismatched_sizes_are_refused() {
    let call = |rows: usize, width: usize, len: usize| {
        let (x, weight) = (vec![0.0; len], vec![0.0; width]);
        let y = &mut x.clone();
        rms_norm(&x, &weight, None, EPSILON, y, &mut vec![0.0; rows]);
    };
    let message = panic_message(|| call(2, 3, 7));
    assert!(
        message.contains("rms_norm: x has 7 values instead of 6"),
        "{message}"
    );
    call(0, 3, 0);
    call(2, 0, 0);
}
