//! Norms against their twins, the twins against finite differences, and what is refused.

use super::*;
use crate::checks::{
    close, close_slopes, dot, each_way, few, numbers, panic_of, shapes, slopes, wide,
};
use crate::threads;
use proptest::prelude::*;

const EPSILON: f32 = 1e-5;

struct Inputs {
    x: Vec<f32>,
    branch: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    dy: Vec<f32>,
}

impl Inputs {
    fn new(rows: usize, width: usize, seed: u64) -> Self {
        Self {
            x: numbers(seed, rows * width),
            branch: numbers(seed ^ 1, rows * width),
            weight: numbers(seed ^ 2, width),
            bias: numbers(seed ^ 3, width),
            dy: numbers(seed ^ 4, rows * width),
        }
    }
}

/// Errors grow with one over the smallest deviation, and the sums over rows with the number of rows.
fn tolerances(expected: &naive::Normalised) -> (f64, f64) {
    let one = 2e-5 * expected.inverse.iter().copied().fold(1.0, f64::max);
    (one, one * (expected.inverse.len() as f64).sqrt().max(1.0))
}

fn check_layer(inputs: &Inputs, rows: usize, has_bias: bool) {
    let Inputs {
        x,
        branch,
        weight,
        bias,
        dy,
    } = inputs;
    let bias = has_bias.then_some(bias.as_slice());
    let bias64 = bias.map(wide);
    let epsilon = f64::from(EPSILON);
    let expected = naive::layer_norm(&wide(x), &wide(weight), bias64.as_deref(), epsilon);
    let (row, sum_of_rows) = tolerances(&expected);
    each_way(|| {
        let (mut y, mut mean, mut inverse) = (
            vec![f32::NAN; x.len()],
            vec![f32::NAN; rows],
            vec![f32::NAN; rows],
        );
        layer_norm(x, weight, bias, EPSILON, &mut y, &mut mean, &mut inverse);
        close("y", &y, &expected.y, row);
        close("mean", &mean, &expected.mean, 1e-6);
        close("inverse", &inverse, &expected.inverse, row);

        let gradients = naive::layer_norm_backward(
            &wide(dy),
            &wide(x),
            &wide(weight),
            &wide(&mean),
            &wide(&inverse),
        );
        let mut dx = vec![f32::NAN; x.len()];
        let (mut dweight, mut dbias) = (vec![f32::NAN; weight.len()], vec![f32::NAN; weight.len()]);
        let wanted = has_bias.then_some(dbias.as_mut_slice());
        layer_norm_backward(
            dy,
            None,
            x,
            weight,
            &mean,
            &inverse,
            &mut dx,
            &mut dweight,
            wanted,
        );
        close("dx", &dx, &gradients.dx, row);
        close("dweight", &dweight, &gradients.dweight, sum_of_rows);
        if has_bias {
            close("dbias", &dbias, &gradients.dbias, sum_of_rows);
        }

        let (mut sum, mut sum_y) = (branch.clone(), vec![f32::NAN; x.len()]);
        add_layer_norm(
            x,
            weight,
            bias,
            EPSILON,
            &mut sum,
            &mut sum_y,
            &mut mean,
            &mut inverse,
        );
        let added: Vec<f32> = x.iter().zip(branch).map(|(a, b)| a + b).collect();
        assert_eq!(sum, added);
        layer_norm(
            &added,
            weight,
            bias,
            EPSILON,
            &mut y,
            &mut mean,
            &mut inverse,
        );
        assert_eq!(sum_y, y);
    });
}

fn check_rms(inputs: &Inputs, rows: usize, has_bias: bool) {
    let Inputs {
        x,
        branch,
        weight,
        bias,
        dy,
    } = inputs;
    let bias = has_bias.then_some(bias.as_slice());
    let bias64 = bias.map(wide);
    let epsilon = f64::from(EPSILON);
    let expected = naive::rms_norm(&wide(x), &wide(weight), bias64.as_deref(), epsilon);
    let (row, sum_of_rows) = tolerances(&expected);
    each_way(|| {
        let (mut y, mut inverse) = (vec![f32::NAN; x.len()], vec![f32::NAN; rows]);
        rms_norm(x, weight, bias, EPSILON, &mut y, &mut inverse);
        close("y", &y, &expected.y, row);
        close("inverse", &inverse, &expected.inverse, row);

        let gradients =
            naive::rms_norm_backward(&wide(dy), &wide(x), &wide(weight), &wide(&inverse));
        let mut dx = vec![f32::NAN; x.len()];
        let (mut dweight, mut dbias) = (vec![f32::NAN; weight.len()], vec![f32::NAN; weight.len()]);
        let wanted = has_bias.then_some(dbias.as_mut_slice());
        rms_norm_backward(dy, None, x, weight, &inverse, &mut dx, &mut dweight, wanted);
        close("dx", &dx, &gradients.dx, row);
        if has_bias {
            close("dbias", &dbias, &gradients.dbias, sum_of_rows);
        }
        let alone = dx.clone();
        rms_norm_backward(
            dy,
            Some(branch),
            x,
            weight,
            &inverse,
            &mut dx,
            &mut dweight,
            None,
        );
        let both: Vec<f32> = alone.iter().zip(branch).map(|(a, b)| a + b).collect();
        assert_eq!(dx, both);
        close("dweight", &dweight, &gradients.dweight, sum_of_rows);

        let (mut sum, mut sum_y) = (branch.clone(), vec![f32::NAN; x.len()]);
        add_rms_norm(x, weight, bias, EPSILON, &mut sum, &mut sum_y, &mut inverse);
        let added: Vec<f32> = x.iter().zip(branch).map(|(a, b)| a + b).collect();
        assert_eq!(sum, added);
        rms_norm(&added, weight, bias, EPSILON, &mut y, &mut inverse);
        assert_eq!(sum_y, y);
    });
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn norms_are_the_twins((rows, width) in shapes(), seed: u64, has_bias: bool) {
        let inputs = Inputs::new(rows, width, seed);
        check_layer(&inputs, rows, has_bias);
        check_rms(&inputs, rows, has_bias);
    }
}

#[test]
fn gradients_are_finite_differences() {
    let (rows, width, epsilon) = (3, 5, 1e-3);
    let inputs = Inputs::new(rows, width, 9);
    let [x, weight, bias, dy] =
        [&inputs.x, &inputs.weight, &inputs.bias, &inputs.dy].map(|numbers| wide(numbers));
    let layer = |x: &[f64], weight: &[f64], bias: &[f64]| {
        dot(&naive::layer_norm(x, weight, Some(bias), epsilon).y, &dy)
    };
    let forward = naive::layer_norm(&x, &weight, Some(&bias), epsilon);
    let found = naive::layer_norm_backward(&dy, &x, &weight, &forward.mean, &forward.inverse);
    close_slopes("dx", &found.dx, &slopes(&x, |x| layer(x, &weight, &bias)));
    close_slopes(
        "dweight",
        &found.dweight,
        &slopes(&weight, |w| layer(&x, w, &bias)),
    );
    close_slopes(
        "dbias",
        &found.dbias,
        &slopes(&bias, |b| layer(&x, &weight, b)),
    );

    let rms = |x: &[f64], weight: &[f64]| dot(&naive::rms_norm(x, weight, None, epsilon).y, &dy);
    let forward = naive::rms_norm(&x, &weight, None, epsilon);
    let found = naive::rms_norm_backward(&dy, &x, &weight, &forward.inverse);
    close_slopes("dx", &found.dx, &slopes(&x, |x| rms(x, &weight)));
    close_slopes("dweight", &found.dweight, &slopes(&weight, |w| rms(&x, w)));
}

#[test]
fn far_from_zero_the_variance_stays_exact() {
    let x: Vec<f32> = numbers(1, 256).iter().map(|x| 1000.0 + x).collect();
    let weight = vec![1.0; 256];
    let expected = naive::layer_norm(&wide(&x), &wide(&weight), None, f64::from(EPSILON));
    each_way(|| {
        let (mut y, mut mean, mut inverse) = (vec![0.0; 256], [0.0], [0.0]);
        layer_norm(&x, &weight, None, EPSILON, &mut y, &mut mean, &mut inverse);
        close("inverse", &inverse, &expected.inverse, 1e-6);
        close("y", &y, &expected.y, 2e-4);
    });
}

#[test]
fn nan_and_infinity_spoil_their_row_and_no_other() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        each_way(|| {
            let mut x = numbers(1, 3 * 19);
            x[25] = bad;
            let (mut y, mut mean, mut inverse) = (vec![0.0; x.len()], [0.0; 3], [0.0; 3]);
            layer_norm(
                &x,
                &[1.0; 19],
                None,
                EPSILON,
                &mut y,
                &mut mean,
                &mut inverse,
            );
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
    let once = threads::alone(run);
    assert!((0..5).all(|_| run() == once));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let call = |rows: usize, width: usize, numbers: usize| {
        let (x, weight) = (vec![0.0; numbers], vec![0.0; width]);
        let y = &mut x.clone();
        rms_norm(&x, &weight, None, EPSILON, y, &mut vec![0.0; rows]);
    };
    let message = panic_of(|| call(2, 3, 7));
    assert!(
        message.contains("rms_norm: x has 7 numbers instead of 6"),
        "{message}"
    );
    call(0, 3, 0);
    call(2, 0, 0);
}
