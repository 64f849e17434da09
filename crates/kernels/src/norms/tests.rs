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

/// A norm on slices that it allocates.
struct Forward {
    y: Vec<f32>,
    mean: Option<Vec<f32>>,
    rstd: Vec<f32>,
}

impl Forward {
    fn new(
        kind: Kind,
        x: &[f32],
        sum: Option<&mut [f32]>,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Self {
        let rows = x.len().checked_div(weight.len()).unwrap_or(0);
        let mut output = Self {
            y: vec![f32::NAN; x.len()],
            mean: (kind == Kind::Layer).then(|| vec![f32::NAN; rows]),
            rstd: vec![f32::NAN; rows],
        };
        NormForward {
            x,
            sum,
            weight,
            bias,
            epsilon: EPSILON,
            y: &mut output.y,
            mean: output.mean.as_deref_mut(),
            rstd: &mut output.rstd,
        }
        .run();
        output
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Layer,
    Rms,
}

impl Kind {
    fn naive(
        self,
        x: &[f64],
        weight: &[f64],
        bias: Option<&[f64]>,
        epsilon: f64,
    ) -> naive::NormOutput {
        match self {
            Self::Layer => naive::layer_norm(x, weight, bias, epsilon),
            Self::Rms => naive::rms_norm(x, weight, bias, epsilon),
        }
    }

    fn naive_backward(
        self,
        dy: &[f64],
        x: &[f64],
        weight: &[f64],
        forward: &naive::NormOutput,
    ) -> naive::NormGradients {
        match self {
            Self::Layer => naive::layer_norm_backward(dy, x, weight, &forward.mean, &forward.rstd),
            Self::Rms => naive::rms_norm_backward(dy, x, weight, &forward.rstd),
        }
    }
}

fn check(kind: Kind, inputs: &Inputs, has_bias: bool) {
    let Inputs {
        x,
        residual,
        weight,
        bias,
        dy,
    } = inputs;
    let bias = has_bias.then_some(bias.as_slice());
    let (x64, weight64, bias64) = (to_f64(x), to_f64(weight), bias.map(to_f64));
    let expected = kind.naive(&x64, &weight64, bias64.as_deref(), f64::from(EPSILON));
    let (row_tolerance, sum_tolerance) = tolerances(&expected);
    let close = |what: &str, ours: &[f32], expected: &[f64], tolerance: f64| {
        let what = format!("{kind:?} {what}");
        assert_close(&what, ours, expected, Scale::EachOrOne, tolerance);
    };
    on_each_instruction_set(|| {
        let forward = Forward::new(kind, x, None, weight, bias);
        close("y", &forward.y, &expected.y, row_tolerance);
        close("rstd", &forward.rstd, &expected.rstd, row_tolerance);
        let mean = forward.mean.as_deref();
        if let Some(mean) = mean {
            close("mean", mean, &expected.mean, 1e-6);
        }

        let saved = naive::NormOutput {
            y: Vec::new(),
            mean: mean.map(to_f64).unwrap_or_default(),
            rstd: to_f64(&forward.rstd),
        };
        let gradients = kind.naive_backward(&to_f64(dy), &x64, &weight64, &saved);
        let backward = |residual_gradient: Option<&[f32]>, needs_dbias: bool| {
            let mut dx = vec![f32::NAN; x.len()];
            let mut dweight = vec![f32::NAN; weight.len()];
            let mut dbias = needs_dbias.then(|| vec![f32::NAN; weight.len()]);
            NormBackward {
                dy,
                residual_gradient,
                x,
                weight,
                mean,
                rstd: &forward.rstd,
                dx: &mut dx,
                dweight: &mut dweight,
                dbias: dbias.as_deref_mut(),
            }
            .run();
            (dx, dweight, dbias)
        };
        let (dx, dweight, dbias) = backward(None, has_bias);
        close("dx", &dx, &gradients.dx, row_tolerance);
        close("dweight", &dweight, &gradients.dweight, sum_tolerance);
        if let Some(dbias) = dbias {
            close("dbias", &dbias, &gradients.dbias, sum_tolerance);
        }
        let (dx_with_residual, dweight, _) = backward(Some(residual), false);
        let added: Vec<f32> = dx.iter().zip(residual).map(|(a, b)| a + b).collect();
        assert_eq!(dx_with_residual, added);
        close("dweight", &dweight, &gradients.dweight, sum_tolerance);

        let mut sum = residual.clone();
        let of_sum = Forward::new(kind, x, Some(&mut sum), weight, bias);
        let added: Vec<f32> = x.iter().zip(residual).map(|(a, b)| a + b).collect();
        assert_eq!(sum, added);
        assert_eq!(of_sum.y, Forward::new(kind, &added, None, weight, bias).y);
    });
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn norms_equal_the_naive_reference((rows, width) in shapes(), seed: u64, has_bias: bool) {
        let inputs = Inputs::new(rows, width, seed);
        check(Kind::Layer, &inputs, has_bias);
        check(Kind::Rms, &inputs, has_bias);
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
        let found = Forward::new(Kind::Layer, &x, None, &weight, None);
        assert_close("rstd", &found.rstd, &expected.rstd, Scale::EachOrOne, 1e-6);
        assert_close("y", &found.y, &expected.y, Scale::EachOrOne, 2e-4);
    });
}

#[test]
fn nan_and_infinity_propagate_only_within_their_row() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        on_each_instruction_set(|| {
            let mut x = random_values(1, 3 * 19);
            x[25] = bad;
            let y = Forward::new(Kind::Layer, &x, None, &[1.0; 19], None).y;
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
        NormBackward {
            dy: &dy,
            residual_gradient: None,
            x: &x,
            weight: &weight,
            mean: None,
            rstd: &vec![0.7; rows],
            dx: &mut dx,
            dweight: &mut dweight,
            dbias: None,
        }
        .run();
        (dx, dweight)
    };
    let once = threads::single_threaded(run);
    assert!((0..5).all(|_| run() == once));
}

#[test]
fn mismatched_sizes_are_refused() {
    let call = |rows: usize, width: usize, len: usize| {
        NormForward {
            x: &vec![0.0; len],
            sum: None,
            weight: &vec![0.0; width],
            bias: None,
            epsilon: EPSILON,
            y: &mut vec![0.0; len],
            mean: None,
            rstd: &mut vec![0.0; rows],
        }
        .run();
    };
    let message = panic_message(|| call(2, 3, 7));
    assert!(
        message.contains("rms_norm: x has 7 values instead of 6"),
        "{message}"
    );
    call(0, 3, 0);
    call(2, 0, 0);
}
