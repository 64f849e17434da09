//! Dropout whose mask is never stored: whether a number is kept is a function of a key and its index. Srivastava et al.
//! 2014.

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts, fits};
use crate::random::{self, GROUP, Key};
use crate::simd;

/// A probability, in the form that masks are made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// A number is dropped when its random bits are below.
    threshold: u32,
    /// What is kept is multiplied by this: 1 / (1 - probability).
    scale: f32,
}

impl Dropout {
    /// Dropout with a probability; with 1 nothing is kept.
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

    /// Whether the number at an index is kept.
    #[inline(always)]
    pub fn keeps(self, key: Key, index: u64) -> bool {
        random::bits(key, index) >= self.threshold && self.scale > 0.0
    }

    /// What the number at an index is multiplied by.
    #[inline(always)]
    pub fn factor(self, key: Key, index: u64) -> f32 {
        if self.keeps(key, index) {
            self.scale
        } else {
            0.0
        }
    }

    /// What the numbers from an index on are multiplied by.
    ///
    /// For kernels that make the mask of a row of weights again in the backward pass. Cheapest where `start` and the
    /// length are multiples of [`GROUP`].
    #[inline(always)]
    pub fn factors<S: Simd>(self, simd: S, key: Key, start: u64, out: &mut [f32]) {
        let mut group = start / GROUP as u64;
        let mut skip = start as usize % GROUP;
        let mut rest = out;
        while !rest.is_empty() {
            let taken = rest.len().min(GROUP - skip);
            let (now, later) = rest.split_at_mut(taken);
            let factors = self.group(simd, key, group);
            now.copy_from_slice(&factors[skip..skip + taken]);
            rest = later;
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

/// `y = x · factor`, where the factor of number `i` is 0 with the given probability and else 1 / (1 - probability).
///
/// The backward pass is the same call on the gradient.
///
/// # Panics
/// When the lengths differ, or the probability is not between 0 and 1.
pub fn dropout(x: &[f32], probability: f32, key: Key, y: &mut [f32]) {
    fits("dropout", "y", y.len(), x.len());
    let dropout = Dropout::new(probability);
    let instructions = simd::instructions();
    let parts = Parts::of_numbers(x.len());
    let work: Vec<_> = parts
        .ranges()
        .zip(parts.cut(x, 1))
        .zip(parts.cut_mut(y, 1))
        .map(|((range, x), y)| Part {
            dropout,
            key,
            start: range.start as u64,
            x,
            y,
        })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

struct Part<'a> {
    dropout: Dropout,
    key: Key,
    start: u64,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Part<'_> {
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

/// The specification: one number at a time.
pub mod naive {
    use super::{Dropout, Key};

    /// Drops what its index does not keep.
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
    use crate::checks::{close, each_way, few, lengths, numbers, panic_of, wide};
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
        #![proptest_config(few())]

        #[test]
        fn numbers_are_dropped_as_by_the_twin(
            length in lengths(),
            seed: u64,
            key: [u32; 2],
            probability in prop::sample::select(vec![0.0f32, 0.1, 0.5, 0.999, 1.0]),
        ) {
            let x = numbers(seed, length);
            let expected = naive::dropout(&wide(&x), probability, key);
            each_way(|| {
                let mut y = vec![f32::NAN; length];
                dropout(&x, probability, key, &mut y);
                close("dropout", &y, &expected, 1e-6);
            });
        }

        #[test]
        fn factors_of_any_row_are_the_single_ones(start in 0u64..1 << 50, length in 0usize..300) {
            let (key, settings) = ([3, 5], Dropout::new(0.3));
            let expected: Vec<f32> =
                (0..length).map(|i| settings.factor(key, start + i as u64)).collect();
            each_way(|| {
                let factors = Factors(settings, key, start, length);
                assert_eq!(simd::run(simd::instructions(), factors), expected);
            });
        }
    }

    #[test]
    fn the_share_that_is_kept_is_the_expected_one() {
        let x = vec![1.0; 1 << 18];
        let mut y = vec![0.0; x.len()];
        dropout(&x, 0.1, [1, 2], &mut y);
        let kept = y.iter().filter(|y| **y != 0.0).count() as f64 / x.len() as f64;
        // Three standard deviations of the share of 2^18 numbers.
        assert!(
            (kept - 0.9).abs() < 3.0 * (0.09 / x.len() as f64).sqrt(),
            "{kept}"
        );
    }

    #[test]
    fn what_cannot_be_dropped_is_refused() {
        assert!(panic_of(|| dropout(&[], f32::NAN, [0, 0], &mut [])).contains("probability NaN"));
        let message = panic_of(|| dropout(&[1.0], 0.5, [0, 0], &mut []));
        assert!(
            message.contains("dropout: y has 0 numbers instead of 1"),
            "{message}"
        );
    }
}
