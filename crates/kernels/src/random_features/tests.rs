//! Features against the naive reference, their gradients against its finite differences, clamping, and refused sizes.

use super::*;
use crate::checks::{
    dot, few_cases, finite_differences, on_each_instruction_set, panic_message, random_values,
    to_f64,
};
use attentive_testing::{Scale, assert_close, assert_near};
use proptest::prelude::*;

const STABILIZERS: [Stabilizer; 3] = [
    Stabilizer::RowMaximum,
    Stabilizer::KeysMaximum,
    Stabilizer::Constant,
];

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn features_equal_the_naive_reference(
        heads in 1usize..4,
        length in prop::sample::select(vec![0usize, 1, 3, 17, 130]),
        head_width in prop::sample::select(vec![1usize, 7, 8, 16, 33]),
        features in prop::sample::select(vec![1usize, 5, 16, 31, 266]),
        seed: u64,
    ) {
        let shape = FeatureShape { heads, length, head_width, features, epsilon: 1e-4 };
        let x = random_values(seed, heads * length * head_width);
        let projection = random_values(!seed, features * head_width);
        for (stabilizer, epsilon) in STABILIZERS.into_iter().zip([1e-4, 1e-4, 0.0]).chain(STABILIZERS.map(|it| (it, 0.0))) {
            let shape = FeatureShape { epsilon, ..shape };
            let expected = naive::forward(shape, &to_f64(&x), &to_f64(&projection), stabilizer);
            on_each_instruction_set(|| {
                let mut y = vec![f32::NAN; heads * length * features];
                forward(shape, &x, &projection, stabilizer, &mut y);
                assert_close("y", &y, &expected, Scale::EachOrOne, 2e-5);
            });
        }
    }
}

#[test]
fn gradients_match_finite_differences_of_the_reference() {
    let shape = FeatureShape {
        heads: 2,
        length: 3,
        head_width: 4,
        features: 5,
        epsilon: 1e-4,
    };
    let (x, projection) = (random_values(1, 24), random_values(2, 20));
    let dy = random_values(3, 30);
    let constant = Stabilizer::Constant;
    let loss = |x: &[f64], projection: &[f64]| {
        dot(
            &naive::forward(shape, x, projection, constant),
            &to_f64(&dy),
        )
    };
    let (x64, projection64) = (to_f64(&x), to_f64(&projection));
    let of_x = finite_differences(&x64, |x| loss(x, &projection64));
    let of_projection = finite_differences(&projection64, |it| loss(&x64, it));
    on_each_instruction_set(|| {
        let mut y = vec![0.0; 30];
        forward(shape, &x, &projection, constant, &mut y);
        let (mut dx, mut dprojection) = (vec![f32::NAN; 24], vec![f32::NAN; 20]);
        let gradients = Gradients {
            x: Some(&mut dx),
            projection: Some(&mut dprojection),
        };
        backward(shape, [&x, &projection, &y], &mut dy.clone(), gradients);
        assert_close("x", &dx, &of_x, Scale::EachOrOne, 1e-5);
        assert_close(
            "projection",
            &dprojection,
            &of_projection,
            Scale::EachOrOne,
            1e-5,
        );
    });
}

#[test]
fn exponents_are_clamped_without_a_maximum_and_get_no_gradient() {
    let shape = FeatureShape {
        heads: 1,
        length: 1,
        head_width: 1,
        features: 1,
        epsilon: 1e-4,
    };
    on_each_instruction_set(|| {
        let (x, projection) = ([10.0], [100.0]);
        let mut y = [0.0];
        forward(shape, &x, &projection, Stabilizer::Constant, &mut y);
        assert_near("y", y[0], MAX_EXPONENT.exp(), Scale::Largest, 1e-5);
        let mut dx = [1.0];
        let gradients = Gradients {
            x: Some(&mut dx),
            projection: None,
        };
        backward(shape, [&x, &projection, &y], &mut [1.0], gradients);
        assert_eq!(dx, [0.0]);
    });
}

#[test]
fn mismatched_sizes_are_refused() {
    let shape = FeatureShape {
        heads: 1,
        length: 2,
        head_width: 1,
        features: 1,
        epsilon: 1e-4,
    };
    let message =
        panic_message(|| forward(shape, &[0.0], &[0.0], Stabilizer::RowMaximum, &mut [0.0; 2]));
    let expected = "random_features: x has 1 values instead of 2";
    assert!(message.contains(expected), "{message}");
}
