//! AdamW: one step of the optimizer in one pass over memory. Loshchilov and Hutter 2019.

use pulp::{Simd, WithSimd};

use crate::map_reduce::{VectorOp, parallel_map};
use crate::partition::{self, Partition};
use crate::simd;

/// The hyperparameters of one step, in double precision: `1 - beta2` of an `f32` 0.999 is off by 5e-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The decay rate of the first moment.
    pub beta1: f64,
    /// The decay rate of the second moment.
    pub beta2: f64,
    /// Added to the denominator for numerical stability.
    pub epsilon: f64,
    /// The decoupled weight decay, which is multiplied by the learning rate.
    pub weight_decay: f64,
    /// `1 - beta1^step`.
    pub bias_correction1: f64,
    /// `1 - beta2^step`.
    pub bias_correction2: f64,
    /// Multiplies the gradient: the factor of gradient clipping, or 1.
    pub gradient_scale: f64,
}

impl AdamW {
    /// Updates the parameters and both moments.
    ///
    /// # Panics
    /// When the slices have different lengths.
    pub fn update(
        &self,
        parameters: &mut [f32],
        gradient: &[f32],
        first_moment: &mut [f32],
        second_moment: &mut [f32],
    ) {
        let step = Update {
            decay: (1.0 - self.learning_rate * self.weight_decay) as f32,
            step_size: (self.learning_rate / self.bias_correction1) as f32,
            beta1: self.beta1 as f32,
            one_minus_beta1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            one_minus_beta2: (1.0 - self.beta2) as f32,
            correction2: (1.0 / self.bias_correction2) as f32,
            epsilon: self.epsilon as f32,
            gradient_scale: self.gradient_scale as f32,
        };
        let outputs = [parameters, first_moment, second_moment];
        parallel_map("adamw", &step, [gradient], outputs);
    }
}

struct Update {
    /// The factor of weight decay.
    decay: f32,
    step_size: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    correction2: f32,
    epsilon: f32,
    gradient_scale: f32,
}

impl VectorOp<1, 3, 0> for Update {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [gradient]: [S::f32s; 1],
        [parameter, first, second]: [S::f32s; 3],
    ) -> ([S::f32s; 3], [S::f32s; 0]) {
        let g = simd.mul_f32s(gradient, simd.splat_f32s(self.gradient_scale));
        let first = simd.mul_add_e_f32s(
            first,
            simd.splat_f32s(self.beta1),
            simd.mul_f32s(g, simd.splat_f32s(self.one_minus_beta1)),
        );
        let square = simd.mul_f32s(g, g);
        let second = simd.mul_add_e_f32s(
            second,
            simd.splat_f32s(self.beta2),
            simd.mul_f32s(square, simd.splat_f32s(self.one_minus_beta2)),
        );
        let corrected = simd.mul_f32s(second, simd.splat_f32s(self.correction2));
        let denominator = simd.add_f32s(simd.sqrt_f32s(corrected), simd.splat_f32s(self.epsilon));
        let numerator = simd.mul_f32s(first, simd.splat_f32s(self.step_size));
        let update = simd.div_f32s(numerator, denominator);
        let decayed = simd.mul_f32s(parameter, simd.splat_f32s(self.decay));
        ([simd.sub_f32s(decayed, update), first, second], [])
    }
}

/// The sum of squares, in double precision: the squared norm of a gradient.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    struct SumOfSquares<'a>(&'a [f32]);
    impl WithSimd for SumOfSquares<'_> {
        type Output = f64;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> f64 {
            // Auto-vectorized: pulp has no portable conversion to double precision.
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
    let work: Vec<_> = Partition::of_elements(x.len())
        .split(x, 1)
        .map(SumOfSquares)
        .collect();
    partition::map(work, |part| simd::run(instructions, part))
        .into_iter()
        .sum()
}

/// The specification: PyTorch's formula, one element at a time.
pub mod naive {
    use super::AdamW;

    /// One step of the optimizer.
    pub fn update(
        settings: &AdamW,
        parameters: &mut [f64],
        gradient: &[f64],
        first: &mut [f64],
        second: &mut [f64],
    ) {
        for i in 0..parameters.len() {
            let g = gradient[i] * settings.gradient_scale;
            parameters[i] *= 1.0 - settings.learning_rate * settings.weight_decay;
            first[i] = settings.beta1 * first[i] + (1.0 - settings.beta1) * g;
            second[i] = settings.beta2 * second[i] + (1.0 - settings.beta2) * g * g;
            parameters[i] -= settings.learning_rate / settings.bias_correction1 * first[i]
                / ((second[i] / settings.bias_correction2).sqrt() + settings.epsilon);
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
    use crate::checks::{
        few_cases, lengths, on_each_instruction_set, panic_message, random_values, to_f64,
    };
    use attentive_testing::{Scale, assert_close, assert_near};
    use proptest::prelude::*;

    fn settings(step: i32) -> AdamW {
        AdamW {
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.1,
            bias_correction1: 1.0 - 0.9f64.powi(step),
            bias_correction2: 1.0 - 0.999f64.powi(step),
            gradient_scale: 0.5,
        }
    }

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn steps_match_the_naive_version(length in lengths(), seed: u64) {
            on_each_instruction_set(|| {
                let mut values = random_values(seed, length);
                let (mut first, mut second) = (vec![0.0; length], vec![0.0; length]);
                let mut expected = [to_f64(&values), to_f64(&first), to_f64(&second)];
                for step in 1..4 {
                    let gradient = random_values(seed ^ step as u64, length);
                    settings(step).update(&mut values, &gradient, &mut first, &mut second);
                    let [value, first, second] = &mut expected;
                    naive::update(&settings(step), value, &to_f64(&gradient), first, second);
                }
                assert_close("values", &values, &expected[0], Scale::EachOrOne, 1e-6);
                assert_close("first", &first, &expected[1], Scale::EachOrOne, 1e-6);
                assert_close("second", &second, &expected[2], Scale::EachOrOne, 1e-6);
            });
        }

        #[test]
        fn sums_of_squares_match_the_naive_version(length in lengths(), seed: u64) {
            let x = random_values(seed, length);
            let expected = naive::sum_of_squares(&to_f64(&x));
            on_each_instruction_set(|| {
                let found = sum_of_squares(&x);
                assert_near("sum of squares", found, expected, Scale::Largest, 1e-12);
            });
        }
    }

    #[test]
    fn a_zero_gradient_leaves_only_weight_decay() {
        let (mut value, mut first, mut second) = ([2.0], [0.0], [0.0]);
        settings(1).update(&mut value, &[0.0], &mut first, &mut second);
        assert_eq!((value, first, second), ([2.0 * 0.999], [0.0], [0.0]));
    }

    #[test]
    fn large_values_do_not_overflow_and_mismatched_lengths_are_refused() {
        assert_eq!(sum_of_squares(&[f32::MAX]), f64::from(f32::MAX).powi(2));
        assert!(sum_of_squares(&[1.0, f32::NAN]).is_nan());
        let message = panic_message(|| {
            settings(1).update(&mut [0.0], &[0.0, 0.0], &mut [0.0], &mut [0.0]);
        });
        assert!(
            message.starts_with("assertion") && message.contains("adamw"),
            "{message}"
        );
    }
}
