//! The forward and backward passes against naive sums, NaN and infinities, and several layers in one backward pass.

use super::*;
use crate::Init;
use crate::activation::{KINDS, naive};
use crate::checks::{assert_sums_close, panic_message, scales_of_sums, unit_values};
use crate::simd::{self, with_instructions};
use attentive_testing::{Scale, assert_close, ulps_of_sum};
use proptest::prelude::*;

/// Fails unless these are activated sums of this many products. The slope of an activation is at most 1.13, and it is flat far below
/// zero, so errors are relative to its values. Its own error is at most 1e-6 (`activation/tests.rs`).
#[track_caller]
fn assert_activated_close(what: &str, found: &[f32], expected: &[f64], products: usize) {
    let scales = scales_of_sums(expected, products).into_iter();
    let scales: Vec<f64> = scales.map(|scale| scale.max(1.0)).collect();
    let bound = 1.13 * ulps_of_sum(products + 3) + 1e-6;
    assert_close(what, found, expected, Scale::Terms(&scales), bound);
}

/// A weight as transposed columns of a wider matrix, as in some checkpoints.
fn transposed_in_wider(weight: &[f32], [output, input]: [usize; 2]) -> (Vec<f32>, [usize; 2]) {
    let (offset, stride) = (2, output + 5);
    let mut all = vec![f32::NAN; input * stride];
    for (i, value) in weight.iter().enumerate() {
        all[i % input * stride + offset + i / input] = *value;
    }
    all.drain(..offset.min(all.len()));
    (all, [1, stride])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn matches_the_naive_version(
        rows in prop_oneof![0usize..9, Just(13), Just(97), Just(257)],
        // The last is more than a block of depth.
        input in prop_oneof![0usize..40, Just(127), Just(385)],
        output in prop_oneof![0usize..40, Just(129), Just(1000)],
        bias: bool,
        transposed: bool,
        kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let shape = LinearShape { rows, input, output };
        let (x, weight) = (unit_values(1, rows * input), unit_values(2, output * input));
        let bias_data = unit_values(3, output);
        let bias = bias.then_some(bias_data.as_slice());
        let expected = super::naive::forward(shape, &x, &weight, bias);
        let (data, strides) = match transposed {
            true => transposed_in_wider(&weight, [output, input]),
            false => (weight.clone(), [input, 1]),
        };
        let matrix = Matrix::strided(&data, [output, input], strides);
        for &instructions in simd::available() {
            with_instructions(instructions, || {
                let mut y = vec![f32::NAN; rows * output];
                let layer = LinearForward { shape, weight: matrix, bias, activation: None, pre_activation: None, y: &mut y };
                forward(&x, [layer]);
                assert_sums_close("y", &y, &expected, input);
                let activated: Vec<f64> = expected.iter().map(|value| naive::value(kind, *value)).collect();
                let activation = Some(kind);
                let mut pre_activation = vec![f32::NAN; rows * output];
                let layer = LinearForward { shape, weight: matrix, bias, activation, pre_activation: Some(&mut pre_activation), y: &mut y };
                forward(&x, [layer]);
                assert_sums_close("pre_activation", &pre_activation, &expected, input);
                assert_activated_close("activated", &y, &activated, input);
                y.fill(f32::NAN);
                let layer = LinearForward { shape, weight: matrix, bias, activation, pre_activation: None, y: &mut y };
                forward(&x, [layer]);
                assert_activated_close("activated without saving", &y, &activated, input);
            });
        }
        let dy = unit_values(4, rows * output);
        let mut dx = vec![f32::NAN; rows * input];
        let mut dweight = vec![f32::NAN; output * input];
        let mut dbias = vec![f32::NAN; output];
        let projection = LinearBackward { shape, dy: &dy, weight: matrix, dweight: Some(&mut dweight), dbias: Some(&mut dbias) };
        let dx_init = Some((dx.as_mut_slice(), Init::Zero));
        backward([InputBackward { x: &x, dx: dx_init, projections: vec![projection] }]);
        let at = |data: &[f32], i: usize| f64::from(data[i]);
        let sum = |count: usize, term: &dyn Fn(usize) -> f64| (0..count).map(term).sum::<f64>();
        let expected: Vec<f64> = (0..rows * input)
            .map(|i| sum(output, &|o| at(&dy, i / input * output + o) * at(&weight, o * input + i % input)))
            .collect();
        assert_sums_close("dx", &dx, &expected, output);
        let expected: Vec<f64> = (0..output * input)
            .map(|i| sum(rows, &|r| at(&dy, r * output + i / input) * at(&x, r * input + i % input)))
            .collect();
        assert_sums_close("dweight", &dweight, &expected, rows);
        let expected: Vec<f64> = (0..output).map(|o| sum(rows, &|r| at(&dy, r * output + o))).collect();
        // A value has the variance of three products.
        assert_sums_close("dbias", &dbias, &expected, 3 * rows);
    }
}

#[test]
fn infinities_and_nan_propagate_through_bias_and_activation() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].repeat(GEMV_MAX_ROWS);
    let shape = LinearShape {
        // More than GEMV handles.
        rows: 3 * GEMV_MAX_ROWS,
        input: 1,
        output: 11,
    };
    for (kind, rows) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, 3), (kind, shape.rows)])
    {
        let shape = LinearShape { rows, ..shape };
        for &instructions in simd::available() {
            with_instructions(instructions, || {
                let mut y = vec![0.0; 11 * rows];
                let layer = LinearForward {
                    shape,
                    weight: Matrix::new(&[1.0; 11], 11, 1),
                    bias: Some(&[0.5; 11]),
                    activation: Some(kind),
                    pre_activation: None,
                    y: &mut y,
                };
                forward(&special[..rows], [layer]);
                for (row, x) in y.chunks(11).zip(special.iter().copied()) {
                    let expected = naive::value(kind, f64::from(x)) as f32;
                    for found in row {
                        let same = *found == expected || (found.is_nan() && expected.is_nan());
                        assert!(same, "{kind:?} of {x}: {found} instead of {expected}");
                    }
                }
            });
        }
    }
}

#[test]
fn a_joint_backward_pass_equals_separate_ones() {
    let (rows, outputs) = (70, [5, 0, 131]);
    let shapes = [24, 40].map(|input| {
        outputs.map(|output| LinearShape {
            rows,
            input,
            output,
        })
    });
    let weight_and_dy = |shape: LinearShape, seed| {
        let weight = unit_values(seed, shape.output * shape.input);
        (weight, unit_values(seed + 1, rows * shape.output))
    };
    let weights_and_dys: Vec<_> = shapes
        .as_flattened()
        .iter()
        .zip(10..)
        .map(|(shape, seed)| weight_and_dy(*shape, 2 * seed))
        .collect();
    let [a, b] = [(24, 1), (40, 2)].map(|(input, seed)| unit_values(seed, rows * input));
    let mut dx = unit_values(5, rows * 24);
    let mut gradients: Vec<_> = shapes
        .as_flattened()
        .iter()
        .map(|it| {
            (
                vec![f32::NAN; it.output * it.input],
                vec![f32::NAN; it.output],
            )
        })
        .collect();
    let mut expected = dx.clone();
    let (first, second) = gradients.split_at_mut(3);
    let projection = |i: usize, gradients| {
        let (dweight, dbias): &mut (Vec<f32>, Vec<f32>) = gradients;
        let (weight, dy) = &weights_and_dys[i];
        let shape = shapes.as_flattened()[i];
        LinearBackward {
            shape,
            dy,
            weight: Matrix::new(weight, shape.output, shape.input),
            dweight: Some(dweight),
            dbias: Some(dbias),
        }
    };
    let projections_of_a = first
        .iter_mut()
        .enumerate()
        .map(|(i, gradients)| projection(i, gradients))
        .collect();
    let projections_of_b = second
        .iter_mut()
        .enumerate()
        .map(|(i, gradients)| projection(i + 3, gradients))
        .collect();
    backward([
        InputBackward {
            x: &a,
            dx: Some((&mut dx, Init::Accumulate)),
            projections: projections_of_a,
        },
        InputBackward {
            x: &b,
            dx: None,
            projections: projections_of_b,
        },
    ]);
    for (i, (dweight, dbias)) in gradients.iter().enumerate() {
        let shape = shapes.as_flattened()[i];
        let (weight, dy) = &weights_and_dys[i];
        let x = if i < 3 { &a } else { &b };
        let (mut alone, mut alone_bias) =
            (vec![f32::NAN; dweight.len()], vec![f32::NAN; dbias.len()]);
        let dx = (i < 3).then_some((expected.as_mut_slice(), Init::Accumulate));
        let projection = LinearBackward {
            shape,
            dy,
            weight: Matrix::new(weight, shape.output, shape.input),
            dweight: Some(&mut alone),
            dbias: Some(&mut alone_bias),
        };
        backward([InputBackward {
            x,
            dx,
            projections: vec![projection],
        }]);
        assert_eq!((dweight, dbias), (&alone, &alone_bias));
    }
    assert_eq!(dx, expected);
}

#[test]
fn a_gradient_initialized_with_a_bias_is_refused() {
    let message = panic_message(|| {
        backward([InputBackward {
            x: &[],
            dx: Some((&mut [], Init::Bias(&[]))),
            projections: Vec::new(),
        }]);
    });
    let expected = "linear_backward: the gradient of an input is initialized with a bias";
    assert!(message.contains(expected), "{message}");
}
