use super::*;
use crate::Onto;
use crate::activation::{KINDS, naive};
use crate::simd::{self, with_instructions};
use proptest::prelude::*;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0)
        .collect()
}

fn close(ours: &[f32], theirs: &[f64], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!(
            (f64::from(*a) - b).abs() < 1e-4 * (1.0 + b.abs()),
            "{what} at {i}: {a} for {b}"
        );
    }
}

/// Rows of a weight as columns of a wider matrix, as some checkpoints have them.
fn turned(weight: &[f32], [output, input]: [usize; 2]) -> (Vec<f32>, [usize; 2]) {
    let (before, wide) = (2, output + 5);
    let mut all = vec![f32::NAN; input * wide];
    for (i, number) in weight.iter().enumerate() {
        all[i % input * wide + before + i / input] = *number;
    }
    all.drain(..before.min(all.len()));
    (all, [1, wide])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn equals_its_twin(
        rows in prop_oneof![0usize..9, Just(13), Just(97), Just(257)],
        // The last is more than a block of depth.
        input in prop_oneof![0usize..40, Just(127), Just(385)],
        output in prop_oneof![0usize..40, Just(129), Just(1000)],
        bias: bool,
        across: bool,
        kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let shape = Shape { rows, input, output };
        let (x, weight) = (numbers(rows * input, 1), numbers(output * input, 2));
        let bias_data = numbers(output, 3);
        let bias = bias.then_some(bias_data.as_slice());
        let expected = forward_naive(shape, &x, &weight, bias);
        let (laid, strides) = match across {
            true => turned(&weight, [output, input]),
            false => (weight.clone(), [input, 1]),
        };
        let matrix = Matrix::strided(&laid, [output, input], strides);
        for &instructions in simd::available() {
            with_instructions(instructions, || {
                let mut y = vec![f32::NAN; rows * output];
                let map = Forward { shape, weight: matrix, bias, activation: None, before: None, y: &mut y };
                forward(&x, [map]);
                close(&y, &expected, "y");
                let activated: Vec<f64> = expected.iter().map(|value| naive::value(kind, *value)).collect();
                let activation = Some(kind);
                let mut before = vec![f32::NAN; rows * output];
                let map = Forward { shape, weight: matrix, bias, activation, before: Some(&mut before), y: &mut y };
                forward(&x, [map]);
                close(&before, &expected, "before");
                close(&y, &activated, "activated");
                y.fill(f32::NAN);
                let map = Forward { shape, weight: matrix, bias, activation, before: None, y: &mut y };
                forward(&x, [map]);
                close(&y, &activated, "activated without keeping");
            });
        }
        let dy = numbers(rows * output, 4);
        let mut dx = vec![f32::NAN; rows * input];
        let mut dweight = vec![f32::NAN; output * input];
        let mut dbias = vec![f32::NAN; output];
        let map = Map { shape, dy: &dy, weight: matrix, dweight: Some(&mut dweight), dbias: Some(&mut dbias) };
        backward([Applied { x: &x, dx: Some((&mut dx, Onto::Replace)), maps: vec![map] }]);
        let at = |data: &[f32], i: usize| f64::from(data[i]);
        let sum = |count: usize, term: &dyn Fn(usize) -> f64| (0..count).map(term).sum::<f64>();
        let slopes: Vec<f64> = (0..rows * input)
            .map(|i| sum(output, &|o| at(&dy, i / input * output + o) * at(&weight, o * input + i % input)))
            .collect();
        close(&dx, &slopes, "dx");
        let slopes: Vec<f64> = (0..output * input)
            .map(|i| sum(rows, &|r| at(&dy, r * output + i / input) * at(&x, r * input + i % input)))
            .collect();
        close(&dweight, &slopes, "dweight");
        let slopes: Vec<f64> = (0..output).map(|o| sum(rows, &|r| at(&dy, r * output + o))).collect();
        close(&dbias, &slopes, "dbias");
    }
}

#[test]
fn what_is_not_finite_passes_through_bias_and_activation() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].repeat(FEW_ROWS);
    let shape = Shape {
        // More than a few, which go another way.
        rows: 3 * FEW_ROWS,
        input: 1,
        output: 11,
    };
    for (kind, rows) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, 3), (kind, shape.rows)])
    {
        let shape = Shape { rows, ..shape };
        for &instructions in simd::available() {
            with_instructions(instructions, || {
                let mut y = vec![0.0; 11 * rows];
                let map = Forward {
                    shape,
                    weight: Matrix::new(&[1.0; 11], 11, 1),
                    bias: Some(&[0.5; 11]),
                    activation: Some(kind),
                    before: None,
                    y: &mut y,
                };
                forward(&special[..rows], [map]);
                for (row, x) in y.chunks(11).zip(special.iter().copied()) {
                    let expected = naive::value(kind, f64::from(x)) as f32;
                    for found in row {
                        let same = *found == expected || (found.is_nan() && expected.is_nan());
                        assert!(same, "{kind:?} of {x}: {found} for {expected}");
                    }
                }
            });
        }
    }
}

#[test]
fn several_maps_of_several_inputs_go_back_together() {
    let (rows, outputs) = (70, [5, 0, 131]);
    let shapes = [24, 40].map(|input| {
        outputs.map(|output| Shape {
            rows,
            input,
            output,
        })
    });
    let numbers_of = |shape: Shape, seed| {
        let weight = numbers(shape.output * shape.input, seed);
        (weight, numbers(rows * shape.output, seed + 1))
    };
    let given: Vec<_> = shapes
        .as_flattened()
        .iter()
        .zip(10..)
        .map(|(shape, seed)| numbers_of(*shape, 2 * seed))
        .collect();
    let [a, b] = [24, 40].map(|input| numbers(rows * input, input));
    let mut dx = numbers(rows * 24, 5);
    let mut slopes: Vec<_> = shapes
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
    let (first, second) = slopes.split_at_mut(3);
    let map = |i: usize, slopes| {
        let (dweight, dbias): &mut (Vec<f32>, Vec<f32>) = slopes;
        let (weight, dy) = &given[i];
        let shape = shapes.as_flattened()[i];
        Map {
            shape,
            dy,
            weight: Matrix::new(weight, shape.output, shape.input),
            dweight: Some(dweight),
            dbias: Some(dbias),
        }
    };
    let maps_of_a = first
        .iter_mut()
        .enumerate()
        .map(|(i, slopes)| map(i, slopes))
        .collect();
    let maps_of_b = second
        .iter_mut()
        .enumerate()
        .map(|(i, slopes)| map(i + 3, slopes))
        .collect();
    backward([
        Applied {
            x: &a,
            dx: Some((&mut dx, Onto::Add)),
            maps: maps_of_a,
        },
        Applied {
            x: &b,
            dx: None,
            maps: maps_of_b,
        },
    ]);
    for (i, (dweight, dbias)) in slopes.iter().enumerate() {
        let shape = shapes.as_flattened()[i];
        let (weight, dy) = &given[i];
        let x = if i < 3 { &a } else { &b };
        let (mut alone, mut alone_bias) =
            (vec![f32::NAN; dweight.len()], vec![f32::NAN; dbias.len()]);
        let dx = (i < 3).then_some((expected.as_mut_slice(), Onto::Add));
        let map = Map {
            shape,
            dy,
            weight: Matrix::new(weight, shape.output, shape.input),
            dweight: Some(&mut alone),
            dbias: Some(&mut alone_bias),
        };
        backward([Applied {
            x,
            dx,
            maps: vec![map],
        }]);
        assert_eq!((dweight, dbias), (&alone, &alone_bias));
    }
    assert_eq!(dx, expected);
}
