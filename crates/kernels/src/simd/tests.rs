use super::*;
use crate::activation::naive::erf as naive_erf;

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
struct Decay;
impl Function for Decay {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        decay(simd, simd.neg_f32s(simd.abs_f32s(x)))
    }
}

#[derive(Clone, Copy)]
struct Moderate;
impl Function for Moderate {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        decay(simd, x)
    }
}

#[derive(Clone, Copy)]
struct Normal;
impl Function for Normal {
    #[inline(always)]
    fn call<S: Simd>(&self, simd: S, x: S::f32s) -> S::f32s {
        normal_distribution(simd, x)
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

fn check<F: Function + Copy>(function: F, exact: fn(f64) -> f64, tolerance: f64) {
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
                let apart = (f64::from(y) / expected - 1.0).abs();
                assert!(
                    apart < tolerance,
                    "{instructions:?} at {x}: {y} for {expected}"
                );
            } else {
                assert!(y.abs() <= f32::MIN_POSITIVE, "at {x}: {y}");
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
fn exponentials_and_hyperbolic_tangents_are_exact_to_a_few_units() {
    check(Exp, f64::exp, 4e-7);
    check(Tanh, f64::tanh, 4e-7);
}

#[test]
fn decays_are_exact_to_a_few_units() {
    check(Decay, |x| (-x.abs()).exp(), 4e-7);
    let inputs: Vec<f32> = (0..=8800).map(|i| i as f32 * 0.01).collect();
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, Moderate));
        for (x, y) in inputs.iter().zip(outputs) {
            let apart = (f64::from(y) / f64::from(*x).exp() - 1.0).abs();
            assert!(apart < 4e-7, "{instructions:?} at {x}: {y}");
        }
    }
}

#[test]
fn normal_distributions_and_what_gelu_makes_of_them_are_exact_to_1e_7() {
    let inputs: Vec<f32> = (-80_000..=80_000).map(|i| i as f32 * 1e-4).collect();
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, Normal));
        for (x, y) in inputs.iter().zip(outputs) {
            let exact = 0.5 * (1.0 + naive_erf(f64::from(*x) * std::f64::consts::FRAC_1_SQRT_2));
            let apart = (f64::from(y) - exact).abs();
            assert!(apart < 3e-7, "{instructions:?} at {x}: {y} for {exact}");
            // What GELU makes of it.
            let tolerance = 1.5e-7 * f64::from(x.max(1.0));
            assert!(
                apart * f64::from(x.abs()) < tolerance,
                "{instructions:?} at {x}: {y} for {exact}"
            );
        }
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0];
        let special = run(instructions, Each(&special, Normal));
        assert!(special[0].is_nan());
        assert_eq!(special[1..], [1.0, 0.0, 0.5]);
    }
}

#[test]
fn far_below_zero_decays_are_zero_and_at_zero_one() {
    let inputs = [
        0.0,
        -0.0,
        f32::MIN,
        -1e30,
        -1e9,
        -88.0,
        LOWEST,
        -87.0,
        -1e-30,
    ];
    for &instructions in available() {
        let outputs = run(instructions, Each(&inputs, Moderate));
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
fn decays_have_the_same_bits_with_all_instructions() {
    let inputs: Vec<f32> = (0..=100_000).map(|i| i as f32 * -8.73e-4).collect();
    let [first, others @ ..] = available() else {
        unreachable!("scalar is always there");
    };
    let expected = run(*first, Each(&inputs, Moderate));
    for &instructions in others {
        assert_eq!(
            run(instructions, Each(&inputs, Moderate)),
            expected,
            "{instructions:?}"
        );
    }
}
