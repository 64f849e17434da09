use super::*;
use crate::checks::{close, dot, each_way, few, numbers, panic_of, slopes, wide};
use proptest::prelude::*;

const STABILIZERS: [Stabilizer; 3] = [
    Stabilizer::RowMaximum,
    Stabilizer::HeadMaximum,
    Stabilizer::Constant,
];

proptest! {
    #![proptest_config(few())]

    #[test]
    fn features_are_the_twins(
        heads in 1usize..4,
        length in prop::sample::select(vec![0usize, 1, 3, 17, 130]),
        head_width in prop::sample::select(vec![1usize, 7, 8, 16, 33]),
        features in prop::sample::select(vec![1usize, 5, 16, 31, 266]),
        seed: u64,
    ) {
        let sizes = Sizes { heads, length, head_width, features, epsilon: 1e-4 };
        let x = numbers(seed, heads * length * head_width);
        let projection = numbers(!seed, features * head_width);
        for (stabilizer, epsilon) in STABILIZERS.into_iter().zip([1e-4, 1e-4, 0.0]).chain(STABILIZERS.map(|it| (it, 0.0))) {
            let sizes = Sizes { epsilon, ..sizes };
            let expected = naive::forward(sizes, &wide(&x), &wide(&projection), stabilizer);
            each_way(|| {
                let mut y = vec![f32::NAN; heads * length * features];
                forward(sizes, &x, &projection, stabilizer, &mut y);
                close("y", &y, &expected, 2e-5);
            });
        }
    }
}

#[test]
fn gradients_are_finite_differences_of_the_twin() {
    let sizes = Sizes {
        heads: 2,
        length: 3,
        head_width: 4,
        features: 5,
        epsilon: 1e-4,
    };
    let (x, projection) = (numbers(1, 24), numbers(2, 20));
    let dy = numbers(3, 30);
    let constant = Stabilizer::Constant;
    let read = |x: &[f64], projection: &[f64]| {
        dot(&naive::forward(sizes, x, projection, constant), &wide(&dy))
    };
    let (x64, projection64) = (wide(&x), wide(&projection));
    let of_x = slopes(&x64, |x| read(x, &projection64));
    let of_projection = slopes(&projection64, |it| read(&x64, it));
    each_way(|| {
        let mut y = vec![0.0; 30];
        forward(sizes, &x, &projection, constant, &mut y);
        let (mut dx, mut dprojection) = (vec![f32::NAN; 24], vec![f32::NAN; 20]);
        let gradients = Gradients {
            x: Some(&mut dx),
            projection: Some(&mut dprojection),
        };
        backward(sizes, [&x, &projection, &y], &mut dy.clone(), gradients);
        close("x", &dx, &of_x, 1e-5);
        close("projection", &dprojection, &of_projection, 1e-5);
    });
}

#[test]
fn exponents_end_without_a_maximum_and_send_nothing_back() {
    let sizes = Sizes {
        heads: 1,
        length: 1,
        head_width: 1,
        features: 1,
        epsilon: 1e-4,
    };
    each_way(|| {
        let (x, projection) = ([10.0], [100.0]);
        let mut y = [0.0];
        forward(sizes, &x, &projection, Stabilizer::Constant, &mut y);
        assert!((y[0] / LARGEST_EXPONENT.exp() - 1.0).abs() < 1e-5);
        let mut dx = [1.0];
        let gradients = Gradients {
            x: Some(&mut dx),
            projection: None,
        };
        backward(sizes, [&x, &projection, &y], &mut [1.0], gradients);
        assert_eq!(dx, [0.0]);
    });
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let sizes = Sizes {
        heads: 1,
        length: 2,
        head_width: 1,
        features: 1,
        epsilon: 1e-4,
    };
    let message =
        panic_of(|| forward(sizes, &[0.0], &[0.0], Stabilizer::RowMaximum, &mut [0.0; 2]));
    let expected = "random_features: x has 1 numbers instead of 2";
    assert!(message.contains(expected), "{message}");
}
