//! AdamW: one step of the optimiser in one pass over memory. Loshchilov and Hutter 2019.

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts};
use crate::simd;
use crate::sweep::{Step, threaded};

/// The settings of one step. Kept with all digits: `1 - beta2` of a rounded 0.999 is off by 5e-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate of this step.
    pub rate: f64,
    /// The decay of the mean of gradients.
    pub beta1: f64,
    /// The decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the denominator.
    pub epsilon: f64,
    /// The weight decay; it is multiplied by the rate.
    pub decay: f64,
    /// `1 - beta1^step`.
    pub first_correction: f64,
    /// `1 - beta2^step`.
    pub second_correction: f64,
    /// What the gradient is multiplied by first: the factor of clipping, or 1.
    pub gradient_scale: f64,
}

impl AdamW {
    /// Moves the values by one step and updates both means.
    ///
    /// # Panics
    /// When the slices have different lengths.
    pub fn update(
        &self,
        values: &mut [f32],
        gradient: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let step = Update {
            keep: (1.0 - self.rate * self.decay) as f32,
            rate: (self.rate / self.first_correction) as f32,
            beta1: self.beta1 as f32,
            rest1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            rest2: (1.0 - self.beta2) as f32,
            second_factor: (1.0 / self.second_correction) as f32,
            epsilon: self.epsilon as f32,
            gradient_scale: self.gradient_scale as f32,
        };
        threaded("adamw", &step, [gradient], [values, first, second]);
    }
}

struct Update {
    keep: f32,
    rate: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    second_factor: f32,
    epsilon: f32,
    gradient_scale: f32,
}

impl Step<1, 3, 0> for Update {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [gradient]: [S::f32s; 1],
        [value, first, second]: [S::f32s; 3],
    ) -> ([S::f32s; 3], [S::f32s; 0]) {
        let g = simd.mul_f32s(gradient, simd.splat_f32s(self.gradient_scale));
        let first = simd.mul_add_e_f32s(
            first,
            simd.splat_f32s(self.beta1),
            simd.mul_f32s(g, simd.splat_f32s(self.rest1)),
        );
        let square = simd.mul_f32s(g, g);
        let second = simd.mul_add_e_f32s(
            second,
            simd.splat_f32s(self.beta2),
            simd.mul_f32s(square, simd.splat_f32s(self.rest2)),
        );
        let corrected = simd.mul_f32s(second, simd.splat_f32s(self.second_factor));
        let deviation = simd.add_f32s(simd.sqrt_f32s(corrected), simd.splat_f32s(self.epsilon));
        let change = simd.div_f32s(simd.mul_f32s(first, simd.splat_f32s(self.rate)), deviation);
        let kept = simd.mul_f32s(value, simd.splat_f32s(self.keep));
        ([simd.sub_f32s(kept, change), first, second], [])
    }
}

/// The sum of squares, in double precision: the square of a gradient's norm.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    struct Part<'a>(&'a [f32]);
    impl WithSimd for Part<'_> {
        type Output = f64;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> f64 {
            // Plain code: the compiler makes vectors of it, and there is no portable conversion to double precision.
            let mut sums = [0.0f64; 16];
            let (blocks, rest) = self.0.as_chunks::<16>();
            for block in blocks {
                for lane in 0..16 {
                    let x = f64::from(block[lane]);
                    sums[lane] += x * x;
                }
            }
            for (lane, x) in rest.iter().enumerate() {
                let x = f64::from(*x);
                sums[lane] += x * x;
            }
            sums.iter().sum()
        }
    }

    let instructions = simd::instructions();
    let work: Vec<_> = Parts::of_numbers(x.len()).cut(x, 1).map(Part).collect();
    parts::map(work, |part| simd::run(instructions, part))
        .into_iter()
        .sum()
}

/// The specification: PyTorch's formula, one number at a time.
pub mod naive {
    use super::AdamW;

    /// One step of the optimiser.
    pub fn update(
        settings: &AdamW,
        values: &mut [f64],
        gradient: &[f64],
        first: &mut [f64],
        second: &mut [f64],
    ) {
        for i in 0..values.len() {
            let g = gradient[i] * settings.gradient_scale;
            values[i] *= 1.0 - settings.rate * settings.decay;
            first[i] = settings.beta1 * first[i] + (1.0 - settings.beta1) * g;
            second[i] = settings.beta2 * second[i] + (1.0 - settings.beta2) * g * g;
            values[i] -= settings.rate / settings.first_correction * first[i]
                / ((second[i] / settings.second_correction).sqrt() + settings.epsilon);
        }
    }

    /// The sum of squares.
    pub fn sum_of_squares(x: &[f64]) -> f64 {
        x.iter().map(|x| x * x).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{close, each_way, few, lengths, numbers, panic_of, wide};
    use proptest::prelude::*;

    fn settings(step: i32) -> AdamW {
        AdamW {
            rate: 1e-2,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decay: 0.1,
            first_correction: 1.0 - 0.9f64.powi(step),
            second_correction: 1.0 - 0.999f64.powi(step),
            gradient_scale: 0.5,
        }
    }

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn steps_are_the_twins(length in lengths(), seed: u64) {
            each_way(|| {
                let mut values = numbers(seed, length);
                let (mut first, mut second) = (vec![0.0; length], vec![0.0; length]);
                let mut expected = [wide(&values), wide(&first), wide(&second)];
                for step in 1..4 {
                    let gradient = numbers(seed ^ step as u64, length);
                    settings(step).update(&mut values, &gradient, &mut first, &mut second);
                    let [value, first, second] = &mut expected;
                    naive::update(&settings(step), value, &wide(&gradient), first, second);
                }
                close("values", &values, &expected[0], 1e-6);
                close("first", &first, &expected[1], 1e-6);
                close("second", &second, &expected[2], 1e-6);
            });
        }

        #[test]
        fn sums_of_squares_are_the_twins(length in lengths(), seed: u64) {
            let x = numbers(seed, length);
            let expected = naive::sum_of_squares(&wide(&x));
            each_way(|| assert!((sum_of_squares(&x) - expected).abs() <= 1e-12 * expected));
        }
    }

    #[test]
    fn a_vanishing_gradient_leaves_only_the_decay() {
        let (mut value, mut first, mut second) = ([2.0], [0.0], [0.0]);
        settings(1).update(&mut value, &[0.0], &mut first, &mut second);
        assert_eq!((value, first, second), ([2.0 * 0.999], [0.0], [0.0]));
    }

    #[test]
    fn large_numbers_do_not_overflow_and_other_lengths_are_refused() {
        assert_eq!(sum_of_squares(&[f32::MAX]), f64::from(f32::MAX).powi(2));
        assert!(sum_of_squares(&[1.0, f32::NAN]).is_nan());
        let message = panic_of(|| {
            settings(1).update(&mut [0.0], &[0.0, 0.0], &mut [0.0], &mut [0.0]);
        });
        assert!(
            message.starts_with("assertion") && message.contains("adamw"),
            "{message}"
        );
    }
}
