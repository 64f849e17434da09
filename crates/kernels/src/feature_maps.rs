//! Positive elementwise feature maps of linear attention. Katharopoulos et al. 2020 (ELU plus one).

use pulp::Simd;

use crate::activation::sigmoids;
use crate::map_reduce::{Apply, ApplyBackward, ElementwiseFunction, for_variant, parallel_map};
use crate::simd::{exp, exp_nonpositive};

/// A positive elementwise function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureMap {
    /// `x + 1` above zero, `e^x` below.
    EluPlusOne,
    /// `max(x, 0) + 1e-6`.
    Relu,
    /// `e^x`.
    Exp,
    /// `ln(1 + e^x)`.
    Softplus,
}

/// Added by [`FeatureMap::Relu`], so that no row of features is all zeros.
pub const RELU_EPSILON: f32 = 1e-6;

const FEATURE_MAPS: [FeatureMap; 4] = [
    FeatureMap::EluPlusOne,
    FeatureMap::Relu,
    FeatureMap::Exp,
    FeatureMap::Softplus,
];

#[inline(always)]
fn value<S: Simd>(simd: S, map: FeatureMap, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let (zero, one) = (splat(0.0), splat(1.0));
    let negative = simd.less_than_f32s(x, zero);
    match map {
        FeatureMap::EluPlusOne => {
            let exponential = exp_nonpositive(simd, simd.select_f32s(negative, x, zero));
            simd.select_f32s(negative, exponential, simd.add_f32s(x, one))
        }
        FeatureMap::Relu => {
            // Not a maximum: that would lose NaN.
            let positive_part = simd.select_f32s(negative, zero, x);
            simd.add_f32s(positive_part, splat(RELU_EPSILON))
        }
        FeatureMap::Exp => exp(simd, x),
        FeatureMap::Softplus => {
            let small = exp_nonpositive(simd, simd.neg_f32s(simd.abs_f32s(x)));
            let positive_part = simd.select_f32s(negative, zero, x);
            simd.add_f32s(positive_part, ln_1p(simd, small))
        }
    }
}

#[inline(always)]
fn derivative<S: Simd>(simd: S, map: FeatureMap, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let (zero, one) = (splat(0.0), splat(1.0));
    match map {
        FeatureMap::EluPlusOne => {
            let positive = simd.greater_than_f32s(x, zero);
            let exponential = exp_nonpositive(simd, simd.select_f32s(positive, zero, x));
            simd.select_f32s(positive, one, exponential)
        }
        FeatureMap::Relu => {
            let is_zero = simd.less_than_or_equal_f32s(x, zero);
            simd.select_f32s(is_zero, zero, one)
        }
        FeatureMap::Exp => exp(simd, x),
        FeatureMap::Softplus => sigmoids(simd, x)[0],
    }
}

/// `ln(1 + t)` for `t` from zero to one: `2 atanh(t / (2 + t))`, whose argument is at most a third, so that seven terms of the
/// series are exact to f32. Small `t` keep full relative precision.
#[inline(always)]
fn ln_1p<S: Simd>(simd: S, t: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let s = simd.div_f32s(t, simd.add_f32s(t, splat(2.0)));
    let square = simd.mul_f32s(s, s);
    let mut series = splat(2.0 / 13.0);
    for odd in [11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = simd.mul_add_f32s(series, square, splat(2.0 / odd));
    }
    simd.mul_f32s(s, series)
}

macro_rules! for_map {
    ($map:expr, $constant:ident => $call:expr) => {
        for_variant!($map, FeatureMap { EluPlusOne, Relu, Exp, Softplus }, $constant => $call)
    };
}

/// The feature map `FEATURE_MAPS[MAP]`.
struct FeatureMapFunction<const MAP: usize>;

impl<const MAP: usize> ElementwiseFunction for FeatureMapFunction<MAP> {
    #[inline(always)]
    fn value<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        value(simd, FEATURE_MAPS[MAP], x)
    }

    #[inline(always)]
    fn gradient<S: Simd>(&self, simd: S, x: S::f32s, dy: S::f32s) -> S::f32s {
        simd.mul_f32s(dy, derivative(simd, FEATURE_MAPS[MAP], x))
    }
}

/// `y = φ(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn forward(map: FeatureMap, x: &[f32], y: &mut [f32]) {
    for_map!(map, MAP => parallel_map("positive_features", &Apply(FeatureMapFunction::<MAP>), [x], [y]));
}

/// `dx = dy · φ'(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn backward(map: FeatureMap, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    for_map!(map, MAP => {
        parallel_map("positive_features", &ApplyBackward(FeatureMapFunction::<MAP>), [x, dy], [dx]);
    });
}

/// The specification, one element at a time.
pub mod naive {
    use super::{FeatureMap, RELU_EPSILON};

    /// The map.
    pub fn value(map: FeatureMap, x: f64) -> f64 {
        match map {
            FeatureMap::EluPlusOne if x < 0.0 => x.exp(),
            FeatureMap::EluPlusOne => x + 1.0,
            FeatureMap::Relu => x.max(0.0) + f64::from(RELU_EPSILON),
            FeatureMap::Exp => x.exp(),
            FeatureMap::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        }
    }

    /// Its derivative.
    pub fn derivative(map: FeatureMap, x: f64) -> f64 {
        match map {
            FeatureMap::EluPlusOne if x < 0.0 => x.exp(),
            FeatureMap::EluPlusOne => 1.0,
            FeatureMap::Relu => f64::from(x > 0.0),
            FeatureMap::Exp => x.exp(),
            FeatureMap::Softplus => 1.0 / (1.0 + (-x).exp()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        assert_gradients_close, few_cases, finite_differences, lengths, on_each_instruction_set,
        panic_message, random_values, to_f64,
    };
    use attentive_testing::{Scale, assert_close, assert_near};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn maps_equal_the_naive_reference(
            length in lengths(),
            seed: u64,
            map in prop::sample::select(FEATURE_MAPS.to_vec()),
            scale in 0.01f32..10.0,
        ) {
            let x: Vec<f32> = random_values(seed, length).iter().map(|x| x * scale).collect();
            let dy = random_values(!seed, length);
            let values: Vec<f64> = to_f64(&x).iter().map(|x| naive::value(map, *x)).collect();
            let gradients = to_f64(&x).into_iter().zip(to_f64(&dy));
            let gradients: Vec<f64> = gradients.map(|(x, dy)| naive::derivative(map, x) * dy).collect();
            on_each_instruction_set(|| {
                let (mut y, mut dx) = (vec![f32::NAN; length], vec![f32::NAN; length]);
                forward(map, &x, &mut y);
                backward(map, &x, &dy, &mut dx);
                assert_close("y", &y, &values, Scale::EachOrOne, 1e-6);
                assert_close("dx", &dx, &gradients, Scale::EachOrOne, 1e-6);
            });
        }
    }

    #[test]
    fn small_features_keep_their_precision() {
        let x: Vec<f32> = (0..800).map(|i| i as f32 * -0.1).collect();
        on_each_instruction_set(|| {
            for map in [
                FeatureMap::EluPlusOne,
                FeatureMap::Exp,
                FeatureMap::Softplus,
            ] {
                let mut y = vec![0.0; x.len()];
                forward(map, &x, &mut y);
                for (x, y) in x.iter().zip(&y) {
                    let expected = naive::value(map, f64::from(*x));
                    let what = format_args!("{map:?} at {x}");
                    assert_near(what, *y, expected, Scale::Largest, 5e-7);
                }
            }
        });
    }

    #[test]
    fn derivatives_match_finite_differences() {
        let x = [-5.0, -1.5, -0.7, -0.1, 0.1, 0.9, 1.3, 2.0, 7.0];
        for map in FEATURE_MAPS {
            let sum = |x: &[f64]| x.iter().map(|x| naive::value(map, *x)).sum();
            let found = x.map(|x| naive::derivative(map, x));
            assert_gradients_close(&format!("{map:?}"), &found, &finite_differences(&x, sum));
        }
    }

    #[test]
    fn nan_propagates() {
        on_each_instruction_set(|| {
            for map in FEATURE_MAPS {
                let mut y = [0.0];
                forward(map, &[f32::NAN], &mut y);
                assert!(y[0].is_nan(), "{map:?}");
            }
        });
    }

    #[test]
    fn mismatched_lengths_are_refused() {
        let message = panic_message(|| forward(FeatureMap::Exp, &[0.0], &mut []));
        let expected = "positive_features: argument 2 has 0 values";
        assert!(message.contains(expected), "{message}");
    }
}
