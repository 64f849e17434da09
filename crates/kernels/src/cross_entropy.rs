//! Cross-entropy of logits with targets, without writing the probabilities down. Label smoothing: Szegedy et al. 2016.

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts, fits};
use crate::simd;
use crate::sweep::{Step, largest, sweep};

/// The target of a row that does not count.
pub const IGNORED: i64 = -100;

/// Logits that are read twice while they are in the first cache.
const BLOCK: usize = 4096;

/// The loss of each row of `vocabulary` logits, and for the backward pass its largest logit and its sum of exponentials of
/// logits less the largest. (One number for both, the logarithm of the whole sum, would round as coarsely as logits far
/// from zero do.)
///
/// With smoothing `s` the target has the probability `1 - s`, and `s` is spread over the whole vocabulary. The mean is
/// the caller's business. A row whose target is [`IGNORED`] is not read; all its numbers are zero.
///
/// # Panics
/// When the sizes do not fit, or a target is not in the vocabulary.
pub fn cross_entropy(
    logits: &[f32],
    targets: &[i64],
    vocabulary: usize,
    smoothing: f32,
    losses: &mut [f32],
    largest: &mut [f32],
    sums: &mut [f32],
) {
    let operation = "cross_entropy";
    let rows = targets.len();
    fits(operation, "logits", logits.len(), rows * vocabulary);
    fits(operation, "losses", losses.len(), rows);
    fits(operation, "largest", largest.len(), rows);
    fits(operation, "sums", sums.len(), rows);
    all_known(operation, targets, vocabulary);
    let instructions = simd::instructions();
    let parts = Parts::of_rows(rows, vocabulary);
    let outputs = (parts.cut_mut(losses, 1))
        .zip(parts.cut_mut(largest, 1))
        .zip(parts.cut_mut(sums, 1));
    let work: Vec<_> = (parts.cut(logits, vocabulary).zip(parts.cut(targets, 1)))
        .zip(outputs)
        .map(|((logits, targets), ((losses, largest), sums))| Forward {
            vocabulary,
            smoothing,
            logits,
            targets,
            losses,
            largest,
            sums,
        })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

/// The gradient of the logits, `scale · (softmax - smoothed target)`; zero in ignored rows.
///
/// `scale` is the gradient of the loss divided by what the caller divides the sum of losses by.
///
/// # Panics
/// When the sizes do not fit, or a target is not in the vocabulary.
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy_backward(
    logits: &[f32],
    targets: &[i64],
    largest: &[f32],
    sums: &[f32],
    vocabulary: usize,
    smoothing: f32,
    scale: f32,
    dlogits: &mut [f32],
) {
    let operation = "cross_entropy_backward";
    let rows = targets.len();
    fits(operation, "logits", logits.len(), rows * vocabulary);
    fits(operation, "largest", largest.len(), rows);
    fits(operation, "sums", sums.len(), rows);
    fits(operation, "dlogits", dlogits.len(), rows * vocabulary);
    all_known(operation, targets, vocabulary);
    let instructions = simd::instructions();
    let parts = Parts::of_rows(rows, vocabulary);
    let inputs = parts.cut(logits, vocabulary).zip(parts.cut(targets, 1));
    let statistics = parts.cut(largest, 1).zip(parts.cut(sums, 1));
    let work: Vec<_> = (inputs.zip(statistics))
        .zip(parts.cut_mut(dlogits, vocabulary))
        .map(|(((logits, targets), (largest, sums)), dlogits)| Backward {
            vocabulary,
            smoothing,
            scale,
            logits,
            targets,
            largest,
            sums,
            dlogits,
        })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

fn all_known(operation: &str, targets: &[i64], vocabulary: usize) {
    for (row, target) in targets.iter().enumerate() {
        assert!(
            *target == IGNORED || usize::try_from(*target).is_ok_and(|target| target < vocabulary),
            "{operation}: the target {target} of row {row} is not in a vocabulary of {vocabulary}"
        );
    }
}

struct Forward<'a> {
    vocabulary: usize,
    smoothing: f32,
    logits: &'a [f32],
    targets: &'a [i64],
    losses: &'a mut [f32],
    largest: &'a mut [f32],
    sums: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, &target) in self.targets.iter().enumerate() {
            if target == IGNORED {
                (self.losses[row], self.largest[row], self.sums[row]) = (0.0, 0.0, 0.0);
                continue;
            }
            let logits = &self.logits[row * self.vocabulary..][..self.vocabulary];
            let (shift, sum, total) = if self.smoothing == 0.0 {
                sums(simd, &Exponentials, logits)
            } else {
                sums(simd, &ExponentialsAndLogits, logits)
            };
            let log_sum = sum.ln();
            let target = log_sum + (shift - logits[target as usize]);
            (self.largest[row], self.sums[row]) = (shift, sum);
            self.losses[row] = if self.smoothing == 0.0 {
                target
            } else {
                let mean = total / self.vocabulary as f64;
                let all = log_sum + (f64::from(shift) - mean) as f32;
                (1.0 - self.smoothing) * target + self.smoothing * all
            };
        }
    }
}

/// The largest logit, the sum of exponentials less the largest, and the sum of logits if the step takes it.
#[inline(always)]
fn sums<S: Simd, T: Shifted>(simd: S, step: &T, logits: &[f32]) -> (f32, f32, f64) {
    let (mut shift, mut sum, mut total) = (f32::NEG_INFINITY, 0.0, 0.0);
    for block in logits.chunks(BLOCK) {
        let largest = largest(simd, block);
        if largest > shift {
            // The sum so far was relative to a smaller shift.
            if sum != 0.0 {
                sum *= (shift - largest).exp();
            }
            shift = largest;
        }
        // Infinity less infinity is no number: rows of minus infinity are summed unshifted.
        let finite = if shift == f32::NEG_INFINITY {
            0.0
        } else {
            shift
        };
        let (exponentials, logits) = step.sums(simd, finite, block);
        sum += exponentials;
        // Logits are summed less the shift, which keeps their digits, and the shift is added in f64.
        total += f64::from(logits) + f64::from(finite) * block.len() as f64;
    }
    (shift, sum, total)
}

/// What the forward pass sums up in a block: exponentials of the logits less the shift, and the logits less the shift.
trait Shifted {
    fn sums<S: Simd>(&self, simd: S, shift: f32, block: &[f32]) -> (f32, f32);
}

struct Exponentials;

impl Shifted for Exponentials {
    #[inline(always)]
    fn sums<S: Simd>(&self, simd: S, shift: f32, block: &[f32]) -> (f32, f32) {
        let [sum] = sweep(simd, &Shift(shift), [block], []);
        (sum, 0.0)
    }
}

struct ExponentialsAndLogits;

impl Shifted for ExponentialsAndLogits {
    #[inline(always)]
    fn sums<S: Simd>(&self, simd: S, shift: f32, block: &[f32]) -> (f32, f32) {
        let [sum, logits] = sweep(simd, &Shift(shift), [block], []);
        (sum, logits)
    }
}

struct Shift(f32);

impl Step<1, 0, 1> for Shift {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        let shifted = simd.sub_f32s(x, simd.splat_f32s(self.0));
        ([], [simd::decay(simd, shifted)])
    }
}

impl Step<1, 0, 2> for Shift {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 2]) {
        let shifted = simd.sub_f32s(x, simd.splat_f32s(self.0));
        ([], [simd::decay(simd, shifted), shifted])
    }
}

struct Backward<'a> {
    vocabulary: usize,
    smoothing: f32,
    scale: f32,
    logits: &'a [f32],
    targets: &'a [i64],
    largest: &'a [f32],
    sums: &'a [f32],
    dlogits: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, &target) in self.targets.iter().enumerate() {
            let range = row * self.vocabulary..(row + 1) * self.vocabulary;
            let dlogits = &mut self.dlogits[range.clone()];
            if target == IGNORED {
                dlogits.fill(0.0);
                continue;
            }
            let step = Gradient {
                largest: self.largest[row],
                factor: self.scale / self.sums[row],
                spread: self.scale * self.smoothing / self.vocabulary as f32,
            };
            sweep(simd, &step, [&self.logits[range]], [&mut *dlogits]);
            dlogits[target as usize] -= self.scale * (1.0 - self.smoothing);
        }
    }
}

struct Gradient {
    largest: f32,
    /// What makes an exponential a probability times the scale.
    factor: f32,
    spread: f32,
}

impl Step<1, 1, 0> for Gradient {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        let exponential = simd::decay(simd, simd.sub_f32s(x, simd.splat_f32s(self.largest)));
        let scaled = simd.mul_f32s(exponential, simd.splat_f32s(self.factor));
        ([simd.sub_f32s(scaled, simd.splat_f32s(self.spread))], [])
    }
}

/// The specification: one number at a time.
pub mod naive {
    use super::IGNORED;

    fn log_sum(row: &[f64]) -> f64 {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        largest + row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
    }

    /// The loss of each row.
    pub fn cross_entropy(
        logits: &[f64],
        targets: &[i64],
        vocabulary: usize,
        smoothing: f64,
    ) -> Vec<f64> {
        let loss = |(row, target): (usize, &i64)| {
            if *target == IGNORED {
                return 0.0;
            }
            let logits = &logits[row * vocabulary..(row + 1) * vocabulary];
            let log_sum = log_sum(logits);
            let loss = log_sum - logits[*target as usize];
            if smoothing == 0.0 {
                return loss;
            }
            let mean = logits.iter().map(|x| log_sum - x).sum::<f64>() / vocabulary as f64;
            (1.0 - smoothing) * loss + smoothing * mean
        };
        targets.iter().enumerate().map(loss).collect()
    }

    /// The gradient of the logits, when each loss has the gradient `scale`.
    pub fn cross_entropy_backward(
        logits: &[f64],
        targets: &[i64],
        vocabulary: usize,
        smoothing: f64,
        scale: f64,
    ) -> Vec<f64> {
        let mut dlogits = vec![0.0; logits.len()];
        for (row, target) in targets.iter().enumerate() {
            if *target == IGNORED {
                continue;
            }
            let range = row * vocabulary..(row + 1) * vocabulary;
            let log_sum = log_sum(&logits[range.clone()]);
            for i in range.clone() {
                let wanted = match i == range.start + *target as usize {
                    true => 1.0 - smoothing + smoothing / vocabulary as f64,
                    false => smoothing / vocabulary as f64,
                };
                dlogits[i] = scale * ((logits[i] - log_sum).exp() - wanted);
            }
        }
        dlogits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        close, close_slopes, each_way, few, numbers, panic_of, shapes, slopes, wide,
    };
    use proptest::prelude::*;

    fn check(logits: &[f32], targets: &[i64], vocabulary: usize, smoothing: f32) {
        let smooth = f64::from(smoothing);
        let losses64 = naive::cross_entropy(&wide(logits), targets, vocabulary, smooth);
        let dlogits64 =
            naive::cross_entropy_backward(&wide(logits), targets, vocabulary, smooth, 0.5);
        each_way(|| {
            let rows = targets.len();
            let [mut losses, mut largest, mut sums] = [(); 3].map(|()| vec![f32::NAN; rows]);
            cross_entropy(
                logits,
                targets,
                vocabulary,
                smoothing,
                &mut losses,
                &mut largest,
                &mut sums,
            );
            close("losses", &losses, &losses64, 2e-6);
            let mut dlogits = vec![f32::NAN; logits.len()];
            cross_entropy_backward(
                logits,
                targets,
                &largest,
                &sums,
                vocabulary,
                smoothing,
                0.5,
                &mut dlogits,
            );
            close("dlogits", &dlogits, &dlogits64, 4e-6);
        });
    }

    /// Targets all over the vocabulary, some of them ignored.
    fn targets(seed: u64, rows: usize, vocabulary: usize) -> Vec<i64> {
        (0..rows as u64)
            .map(|row| match (seed ^ row) % 5 {
                0 => IGNORED,
                _ => ((seed >> 8).wrapping_add(row * 31) % vocabulary as u64) as i64,
            })
            .collect()
    }

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn losses_and_gradients_are_the_twins(
            (rows, vocabulary) in shapes(),
            seed: u64,
            size in 0.1f32..20.0,
            smoothing in prop::sample::select(vec![0.0f32, 0.1]),
        ) {
            let logits: Vec<f32> =
                numbers(seed, rows * vocabulary).iter().map(|x| x * size).collect();
            check(&logits, &targets(seed, rows, vocabulary), vocabulary, smoothing);
        }
    }

    /// A gradient is wrong by a few roundings of itself, wherever the logits are. (`check` compares with 1.)
    #[test]
    fn far_from_zero_nothing_is_lost() {
        let (vocabulary, targets) = (BLOCK + 5, [3, BLOCK as i64]);
        for (far, smoothing) in [(0.0, 0.1), (500.0, 0.0), (-500.0, 0.1), (30_000.0, 0.1)] {
            let logits: Vec<f32> = (numbers(7, 2 * vocabulary).iter().map(|x| x + far)).collect();
            check(&logits, &targets, vocabulary, smoothing);
            let expected = naive::cross_entropy_backward(
                &wide(&logits),
                &targets,
                vocabulary,
                f64::from(smoothing),
                1e4,
            );
            let [mut losses, mut largest, mut sums] = [[0.0; 2]; 3];
            cross_entropy(
                &logits,
                &targets,
                vocabulary,
                smoothing,
                &mut losses,
                &mut largest,
                &mut sums,
            );
            let mut dlogits = vec![0.0; logits.len()];
            cross_entropy_backward(
                &logits,
                &targets,
                &largest,
                &sums,
                vocabulary,
                smoothing,
                1e4,
                &mut dlogits,
            );
            close("dlogits", &dlogits, &expected, 4e-6);
        }
    }

    #[test]
    fn infinities_and_nan_pass_as_in_pytorch() {
        let vocabulary = 2 * BLOCK + 3;
        let mut logits = numbers(5, 6 * vocabulary);
        let rows: Vec<&mut [f32]> = logits.chunks_mut(vocabulary).collect();
        let [nothing, nan, high, some, late, ignored] = rows.try_into().unwrap();
        nothing.fill(f32::NEG_INFINITY);
        nan[BLOCK + 1] = f32::NAN;
        high[7] = f32::INFINITY;
        some[..BLOCK].fill(f32::NEG_INFINITY);
        late[vocabulary - 1] = 80.0;
        ignored.fill(f32::NAN);
        check(
            &logits,
            &[0, 1, 2, BLOCK as i64, 3, IGNORED],
            vocabulary,
            0.0,
        );
        let [mut losses, mut largest, mut sums] = [[1.0; 6]; 3];
        let all = [0, 1, 2, 3, 4, IGNORED];
        cross_entropy(
            &logits,
            &all,
            vocabulary,
            0.0,
            &mut losses,
            &mut largest,
            &mut sums,
        );
        assert!(losses[..3].iter().all(|loss| loss.is_nan()));
        assert_eq!(losses[3], f32::INFINITY);
        assert_eq!([losses[5], largest[5], sums[5]], [0.0; 3]);
    }

    #[test]
    fn the_gradient_is_the_finite_difference() {
        let (logits, targets) = (wide(&numbers(6, 28)), [3, IGNORED, 0, 6]);
        for smoothing in [0.0, 0.2] {
            let found = naive::cross_entropy_backward(&logits, &targets, 7, smoothing, 1.5);
            let loss = |x: &[f64]| {
                1.5 * naive::cross_entropy(x, &targets, 7, smoothing)
                    .iter()
                    .sum::<f64>()
            };
            close_slopes("dlogits", &found, &slopes(&logits, loss));
        }
    }

    #[test]
    fn strange_targets_and_sizes_are_refused() {
        let call = |targets: &[i64], logits: usize| {
            let rows = targets.len();
            let logits = vec![0.0; logits];
            cross_entropy(
                &logits,
                targets,
                3,
                0.0,
                &mut vec![0.0; rows],
                &mut vec![0.0; rows],
                &mut vec![0.0; rows],
            );
        };
        let message = panic_of(|| call(&[0, 3], 6));
        assert!(message.contains("the target 3 of row 1 is not in a vocabulary of 3"));
        assert!(panic_of(|| call(&[-1], 3)).contains("the target -1"));
        assert!(panic_of(|| call(&[1], 4)).contains("logits has 4 numbers instead of 3"));
    }
}
