//! Dropout with a recomputed mask: whether an element is kept is a function of a key and its index. Srivastava et al. 2014.

use pulp::{Simd, WithSimd};

use crate::partition::{self, Partition, check_length};
use crate::random::{self, GROUP, Key};
use crate::simd;

/// A dropout probability, as the threshold and the scale that masks are computed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// An element is dropped when its random bits are below.
    threshold: u32,
    /// The factor of kept elements: 1 / (1 - probability).
    scale: f32,
}

impl Dropout {
    /// Dropout with a probability of 0 to 1; 1 drops everything.
    ///
    /// # Panics
    /// When the probability is not between 0 and 1.
    pub fn new(probability: f32) -> Self {
        assert!(
            (0.0..=1.0).contains(&probability),
            "dropout: the probability {probability} is not between 0 and 1"
        );
        let probability = f64::from(probability);
        let scale = if probability < 1.0 {
            1.0 / (1.0 - probability)
        } else {
            0.0
        };
        Self {
            threshold: (probability * 4_294_967_296.0) as u32,
            scale: scale as f32,
        }
    }

    /// Whether the element at an index is kept.
    #[inline(always)]
    pub fn keeps(self, key: Key, index: u64) -> bool {
        random::bits(key, index) >= self.threshold && self.scale > 0.0
    }

    /// The factor of the element at an index.
    #[inline(always)]
    pub fn factor(self, key: Key, index: u64) -> f32 {
        if self.keeps(key, index) {
            self.scale
        } else {
            0.0
        }
    }

    /// The factors of the elements from an index on.
    ///
    /// For kernels that recompute the mask of a row of attention weights in the backward pass. Cheapest where `start` and the
    /// length are multiples of [`GROUP`].
    #[inline(always)]
    pub fn factors<S: Simd>(self, simd: S, key: Key, start: u64, out: &mut [f32]) {
        let mut group = start / GROUP as u64;
        let mut skip = start as usize % GROUP;
        let mut rest = out;
        while !rest.is_empty() {
            let count = rest.len().min(GROUP - skip);
            let (head, tail) = rest.split_at_mut(count);
            let factors = self.group(simd, key, group);
            head.copy_from_slice(&factors[skip..skip + count]);
            rest = tail;
            group += 1;
            skip = 0;
        }
    }

    #[inline(always)]
    fn group<S: Simd>(self, simd: S, key: Key, group: u64) -> [f32; GROUP] {
        let bits = random::group(simd, key, group);
        let mut out = [0.0; GROUP];
        let (factors, _) = S::as_mut_simd_f32s(&mut out);
        let threshold = simd.splat_u32s(self.threshold);
        for (factor, bits) in factors.iter_mut().zip(S::as_simd_u32s(&bits).0) {
            *factor = simd.select_f32s(
                simd.less_than_u32s(*bits, threshold),
                simd.splat_f32s(0.0),
                simd.splat_f32s(self.scale),
            );
        }
        out
    }
}

/// `y = x · factor`, where the factor of element `i` is 0 with the given probability and else 1 / (1 - probability).
///
/// The backward pass is the same call on the gradient.
///
/// # Panics
/// When the lengths differ, or the probability is not between 0 and 1.
pub fn dropout(x: &[f32], probability: f32, key: Key, y: &mut [f32]) {
    check_length("dropout", "y", y.len(), x.len());
    let dropout = Dropout::new(probability);
    let instructions = simd::instructions();
    let parts = Partition::of_elements(x.len());
    let work: Vec<_> = parts
        .ranges()
        .zip(parts.split(x, 1))
        .zip(parts.split_mut(y, 1))
        .map(|((range, x), y)| DropoutKernel {
            dropout,
            key,
            start: range.start as u64,
            x,
            y,
        })
        .collect();
    partition::for_each(work, |part| simd::run(instructions, part));
}

struct DropoutKernel<'a> {
    dropout: Dropout,
    key: Key,
    start: u64,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for DropoutKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Parts start at multiples of 64, as groups do.
        let first = self.start / GROUP as u64;
        let groups = self.x.chunks(GROUP).zip(self.y.chunks_mut(GROUP));
        for (index, (x, y)) in groups.enumerate() {
            let factors = self.dropout.group(simd, self.key, first + index as u64);
            for ((y, x), factor) in y.iter_mut().zip(x).zip(&factors) {
                *y = x * factor;
            }
        }
    }
}

/// The specification: one element at a time.
pub mod naive {
    use super::{Dropout, Key};

    /// Zeros the dropped elements and scales the others.
    pub fn dropout(x: &[f64], probability: f32, key: Key) -> Vec<f64> {
        let dropout = Dropout::new(probability);
        let factor = |index| match dropout.keeps(key, index as u64) {
            true => 1.0 / (1.0 - f64::from(probability)),
            false => 0.0,
        };
        x.iter()
            .enumerate()
            .map(|(index, x)| x * factor(index))
            .collect()
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

    struct Factors(Dropout, Key, u64, usize);
    impl WithSimd for Factors {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
            let mut out = vec![f32::NAN; self.3];
            self.0.factors(simd, self.1, self.2, &mut out);
            out
        }
    }

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn elements_are_dropped_as_in_the_naive_version(
            length in lengths(),
            seed: u64,
            key: [u32; 2],
            probability in prop::sample::select(vec![0.0f32, 0.1, 0.5, 0.999, 1.0]),
        ) {
            let x = random_values(seed, length);
            let expected = naive::dropout(&to_f64(&x), probability, key);
            on_each_instruction_set(|| {
                let mut y = vec![f32::NAN; length];
                dropout(&x, probability, key, &mut y);
                assert_close("dropout", &y, &expected, Scale::EachOrOne, 1e-6);
            });
        }

        #[test]
        fn factors_of_a_row_equal_single_factors(start in 0u64..1 << 50, length in 0usize..300) {
            let (key, settings) = ([3, 5], Dropout::new(0.3));
            let expected: Vec<f32> =
                (0..length).map(|i| settings.factor(key, start + i as u64)).collect();
            on_each_instruction_set(|| {
                let factors = Factors(settings, key, start, length);
                assert_eq!(simd::run(simd::instructions(), factors), expected);
            });
        }
    }

    #[test]
    fn the_fraction_kept_matches_the_probability() {
        let x = vec![1.0; 1 << 18];
        let mut y = vec![0.0; x.len()];
        dropout(&x, 0.1, [1, 2], &mut y);
        let kept = y.iter().filter(|y| **y != 0.0).count() as f64 / x.len() as f64;
        let std = (0.09 / x.len() as f64).sqrt();
        assert_near("fraction", kept, 0.9, Scale::Of(std), 3.0);
    }

    #[test]
    fn invalid_probabilities_and_lengths_are_refused() {
        assert!(
            panic_message(|| dropout(&[], f32::NAN, [0, 0], &mut [])).contains("probability NaN")
        );
        let message = panic_message(|| dropout(&[1.0], 0.5, [0, 0], &mut []));
        assert!(
            message.contains("dropout: y has 0 values instead of 1"),
            "{message}"
        );
    }
}
