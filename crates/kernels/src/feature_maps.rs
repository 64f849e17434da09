//! Positive maps of queries and keys to features, element by element. Katharopoulos et al. 2020 (ELU plus one).

use pulp::Simd;

use crate::activation::sigmoids;
use crate::simd::{decay, exp};
use crate::sweep::{Step, threaded};

/// Which map.
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

/// What [`FeatureMap::Relu`] adds, so that no row of features is all zeros.
pub const RELU_EPSILON: f32 = 1e-6;

const MAPS: [FeatureMap; 4] = [
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
            let low = decay(simd, simd.select_f32s(negative, x, zero));
            simd.select_f32s(negative, low, simd.add_f32s(x, one))
        }
        FeatureMap::Relu => {
            // Not a maximum: that would lose NaN.
            let kept = simd.select_f32s(negative, zero, x);
            simd.add_f32s(kept, splat(RELU_EPSILON))
        }
        FeatureMap::Exp => exp(simd, x),
        FeatureMap::Softplus => {
            let small = decay(simd, simd.neg_f32s(simd.abs_f32s(x)));
            let kept = simd.select_f32s(negative, zero, x);
            simd.add_f32s(kept, logarithm_of_one_and(simd, small))
        }
    }
}

#[inline(always)]
fn slope<S: Simd>(simd: S, map: FeatureMap, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let (zero, one) = (splat(0.0), splat(1.0));
    match map {
        FeatureMap::EluPlusOne => {
            let positive = simd.greater_than_f32s(x, zero);
            let low = decay(simd, simd.select_f32s(positive, zero, x));
            simd.select_f32s(positive, one, low)
        }
        FeatureMap::Relu => {
            let off = simd.less_than_or_equal_f32s(x, zero);
            simd.select_f32s(off, zero, one)
        }
        FeatureMap::Exp => exp(simd, x),
        FeatureMap::Softplus => sigmoids(simd, x)[0],
    }
}

/// `ln(1 + t)` for `t` from zero to one: twice the series of the inverse hyperbolic tangent of `t / (2 + t)`, which is at most
/// a third, so that seven terms are exact to f32. Small `t` keep all their digits.
#[inline(always)]
fn logarithm_of_one_and<S: Simd>(simd: S, t: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let s = simd.div_f32s(t, simd.add_f32s(t, splat(2.0)));
    let square = simd.mul_f32s(s, s);
    let mut series = splat(2.0 / 13.0);
    for odd in [11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = simd.mul_add_f32s(series, square, splat(2.0 / odd));
    }
    simd.mul_f32s(s, series)
}

/// Compiles the call for each map, so that the choice is made once and not for each vector.
macro_rules! for_map {
    ($map:expr, $constant:ident => $call:expr) => {
        match $map {
            FeatureMap::EluPlusOne => {
                const $constant: usize = FeatureMap::EluPlusOne as usize;
                $call
            }
            FeatureMap::Relu => {
                const $constant: usize = FeatureMap::Relu as usize;
                $call
            }
            FeatureMap::Exp => {
                const $constant: usize = FeatureMap::Exp as usize;
                $call
            }
            FeatureMap::Softplus => {
                const $constant: usize = FeatureMap::Softplus as usize;
                $call
            }
        }
    };
}

/// `y = φ(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn forward(map: FeatureMap, x: &[f32], y: &mut [f32]) {
    for_map!(map, MAP => threaded("positive_features", &Forward::<MAP>, [x], [y]));
}

/// `dx = dy · φ'(x)`.
///
/// # Panics
/// When the lengths differ.
pub fn backward(map: FeatureMap, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    for_map!(map, MAP => threaded("positive_features", &Backward::<MAP>, [x, dy], [dx]));
}

struct Forward<const MAP: usize>;

impl<const MAP: usize> Step<1, 1, 0> for Forward<MAP> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([value(simd, MAPS[MAP], x)], [])
    }
}

struct Backward<const MAP: usize>;

impl<const MAP: usize> Step<2, 1, 0> for Backward<MAP> {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x, dy]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(dy, slope(simd, MAPS[MAP], x))], [])
    }
}

/// The specification, one number at a time.
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
    pub fn slope(map: FeatureMap, x: f64) -> f64 {
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
        close, close_slopes, each_way, few, lengths, numbers, panic_of, slopes, wide,
    };
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn maps_are_the_twins(
            length in lengths(),
            seed: u64,
            map in prop::sample::select(MAPS.to_vec()),
            size in 0.01f32..10.0,
        ) {
            let x: Vec<f32> = numbers(seed, length).iter().map(|x| x * size).collect();
            let dy = numbers(!seed, length);
            let values: Vec<f64> = wide(&x).iter().map(|x| naive::value(map, *x)).collect();
            let slopes = wide(&x).into_iter().zip(wide(&dy));
            let slopes: Vec<f64> = slopes.map(|(x, dy)| naive::slope(map, x) * dy).collect();
            each_way(|| {
                let (mut y, mut dx) = (vec![f32::NAN; length], vec![f32::NAN; length]);
                forward(map, &x, &mut y);
                backward(map, &x, &dy, &mut dx);
                close("y", &y, &values, 1e-6);
                close("dx", &dx, &slopes, 1e-6);
            });
        }
    }

    #[test]
    fn small_features_keep_their_digits() {
        let x: Vec<f32> = (0..800).map(|i| i as f32 * -0.1).collect();
        each_way(|| {
            for map in [
                FeatureMap::EluPlusOne,
                FeatureMap::Exp,
                FeatureMap::Softplus,
            ] {
                let mut y = vec![0.0; x.len()];
                forward(map, &x, &mut y);
                for (x, y) in x.iter().zip(&y) {
                    let expected = naive::value(map, f64::from(*x));
                    let apart = (f64::from(*y) / expected - 1.0).abs();
                    assert!(apart < 5e-7, "{map:?} at {x}: {y} for {expected}");
                }
            }
        });
    }

    #[test]
    fn slopes_are_finite_differences() {
        let x = [-5.0, -1.5, -0.7, -0.1, 0.1, 0.9, 1.3, 2.0, 7.0];
        for map in MAPS {
            let sum = |x: &[f64]| x.iter().map(|x| naive::value(map, *x)).sum();
            let found = x.map(|x| naive::slope(map, x));
            close_slopes(&format!("{map:?}"), &found, &slopes(&x, sum));
        }
    }

    #[test]
    fn nan_passes() {
        each_way(|| {
            for map in MAPS {
                let mut y = [0.0];
                forward(map, &[f32::NAN], &mut y);
                assert!(y[0].is_nan(), "{map:?}");
            }
        });
    }

    #[test]
    fn other_lengths_are_refused() {
        let message = panic_of(|| forward(FeatureMap::Exp, &[0.0], &mut []));
        let expected = "positive_features: argument 2 has 0 numbers";
        assert!(message.contains(expected), "{message}");
    }
}
