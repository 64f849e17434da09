//! The elementary functions against double precision, on every instruction set, and their bitwise equality across them.

use super::*;
use crate::activation::naive::erf as naive_erf;
use attentive_testing::{Scale, assert_near};

struct Each<'a, F>(&'a [f32], F);

trait Function {
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s;
}

#[derive(Clone, Copy)]
struct Exp;
impl Function for Exp {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        exp(simd, x)
    }
}

#[derive(Clone, Copy)]
struct Tanh;
impl Function for Tanh {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        tanh(simd, x)
    }
}

#[derive(Clone, Copy)]
struct ExpNonpositive;
impl Function for ExpNonpositive {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        exp_nonpositive(simd, simd.neg_f32s(simd.abs_f32s(x)))
    }
}

#[derive(Clone, Copy)]
struct ExpModerate;
impl Function for ExpModerate {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        exp_nonpositive(simd, x)
    }
}

#[derive(Clone, Copy)]
struct NormalCdf;
impl Function for NormalCdf {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        normal_cdf(simd, x)
    }
}

impl<F: Function> WithSimd for Each<'_, F> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len()];
        for (to, from) in out
            .chunks_mut(S::F32_LANES)
            .zip(self.0.chunks(S::F32_LANES))
        {
            let x = simd.partial_load_f32s(from);
            simd.partial_store_f32s(to, self.1.call(simd, x));
        }
        out
    }
}

fn check<F: Function + Copy>(function: F, exact: fn(f64) -> f64, bound: f64) {
    let inputs: Vec<f32> = (-9500..=9500)
        .map(|i| i as f32 * 0.01)
        .chain([1e-6, -1e-6, 0.0])
        .collect();
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, function));
        for (x, y) in inputs.iter().zip(outputs) {
            let expected = exact(f64::from(*x));
            if expected > f64::from(f32::MAX) {
                assert_eq!(y, f32::INFINITY, "at {x}");
            } else if expected.abs() >= f64::from(f32::MIN_POSITIVE) {
                let what = format_args!("{instructions:?} at {x}");
                assert_near(what, y, expected, Scale::Largest, bound);
            } else {
                let smallest = Scale::Of(f64::from(f32::MIN_POSITIVE));
                assert_near(format_args!("at {x}"), y, 0.0, smallest, 1.0);
            }
        }
        let special = run(
            instructions,
            Each(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY], function),
        );
        assert!(special[0].is_nan());
        assert_eq!(f64::from(special[1]), exact(f64::INFINITY));
        assert_eq!(f64::from(special[2]), exact(f64::NEG_INFINITY));
    }
}

#[test]
fn exp_and_tanh_are_accurate_to_a_few_ulp() {
    check(Exp, f64::exp, 4e-7);
    check(Tanh, f64::tanh, 4e-7);
}

#[test]
fn exp_nonpositive_is_accurate_to_a_few_ulp() {
    check(ExpNonpositive, |x| (-x.abs()).exp(), 4e-7);
    let inputs: Vec<f32> = (0..=8800).map(|i| i as f32 * 0.01).collect();
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, ExpModerate));
        for (x, y) in inputs.iter().zip(outputs) {
            let what = format_args!("{instructions:?} at {x}");
            assert_near(what, y, f64::from(*x).exp(), Scale::Largest, 4e-7);
        }
    }
}

#[test]
fn normal_cdf_and_gelu_are_accurate_to_1e_7() {
    let inputs: Vec<f32> = (-80_000..=80_000).map(|i| i as f32 * 1e-4).collect();
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, NormalCdf));
        for (x, y) in inputs.iter().zip(outputs) {
            let exact = 0.5 * (1.0 + naive_erf(f64::from(*x) * std::f64::consts::FRAC_1_SQRT_2));
            let what = format_args!("{instructions:?} at {x}");
            assert_near(what, y, exact, Scale::One, 3e-7);
            let (ours, exact) = (f64::from(*x) * f64::from(y), f64::from(*x) * exact);
            let scale = Scale::Of(f64::from(x.max(1.0)));
            assert_near(format_args!("GELU, {what}"), ours, exact, scale, 1.5e-7);
        }
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0];
        let special = run(instructions, Each(&special, NormalCdf));
        assert!(special[0].is_nan());
        assert_eq!(special[1..], [1.0, 0.0, 0.5]);
    }
}

#[test]
fn exp_nonpositive_is_zero_far_below_zero_and_one_at_zero() {
    let inputs = [
        0.0,
        -0.0,
        f32::MIN,
        -1e30,
        -1e9,
        -88.0,
        EXP_MIN,
        -87.0,
        -1e-30,
    ];
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, ExpModerate));
        assert_eq!(
            outputs[..6],
            [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            "{instructions:?}"
        );
        assert!(outputs[6] > 0.0 && outputs[6] <= f32::MIN_POSITIVE);
        assert!(outputs[7] > f32::MIN_POSITIVE);
        assert_eq!(outputs[8], 1.0);
    }
}

#[test]
fn exp_nonpositive_is_bitwise_equal_on_all_instruction_sets() {
    let inputs: Vec<f32> = (0..=100_000).map(|i| i as f32 * -8.73e-4).collect();
    let [first, others @ ..] = available() else {
        unreachable!("scalar is always there");
    };
    let expected = run(*first, Each(&inputs, ExpModerate));
    for &instructions in others {
        assert_eq!(
            run(instructions, Each(&inputs, ExpModerate)),
            expected,
            "{instructions:?}"
        );
    }
}
