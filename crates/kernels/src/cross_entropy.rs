//! Fused softmax and cross-entropy, without materializing the probabilities. Label smoothing: Szegedy et al. 2016.

use pulp::{Simd, WithSimd};

use crate::map_reduce::{VectorOp, map_reduce, max};
use crate::partition::{self, Partition, check_length};
use crate::simd;

/// The target of an ignored row, as in PyTorch.
pub const IGNORE_INDEX: i64 = -100;

/// Logits per block: it is read twice, the second time from L1.
const BLOCK: usize = 4096;

/// The forward pass: the loss of each row of `vocabulary` logits, and for the backward pass the row's maximum and its sum of
/// `exp(logit - max)`. (Saving their combination, the log-sum-exp, would lose precision for logits far from zero.)
///
/// With label smoothing `s` the target has the probability `1 - s`, and `s` is spread over the whole vocabulary. There is no
/// reduction. A row whose target is [`IGNORE_INDEX`] is not read; its results are zero.
#[derive(Debug)]
pub struct CrossEntropyForward<'a> {
    /// `[rows, vocabulary]`
    pub logits: &'a [f32],
    /// `[rows]`
    pub targets: &'a [i64],
    /// The length of a row of logits.
    pub vocabulary: usize,
    /// The probability that is spread over the vocabulary.
    pub label_smoothing: f32,
    /// The result, `[rows]`.
    pub losses: &'a mut [f32],
    /// The maximum of each row, saved for the backward pass.
    pub max: &'a mut [f32],
    /// The sum of exponentials of each row, saved for the backward pass.
    pub exp_sums: &'a mut [f32],
}

impl CrossEntropyForward<'_> {
    /// Computes all rows.
    ///
    /// # Panics
    /// When the sizes do not match, or a target is not in the vocabulary.
    pub fn run(self) {
        let Self {
            logits,
            targets,
            vocabulary,
            label_smoothing,
            losses,
            max,
            exp_sums,
        } = self;
        let operation = "cross_entropy";
        let rows = targets.len();
        check_length(operation, "logits", logits.len(), rows * vocabulary);
        check_length(operation, "losses", losses.len(), rows);
        check_length(operation, "max", max.len(), rows);
        check_length(operation, "exp_sums", exp_sums.len(), rows);
        check_targets(operation, targets, vocabulary);
        let instructions = simd::instructions();
        let parts = Partition::of_rows(rows, vocabulary);
        let outputs = (parts.split_mut(losses, 1))
            .zip(parts.split_mut(max, 1))
            .zip(parts.split_mut(exp_sums, 1));
        let tasks: Vec<_> = (parts.split(logits, vocabulary).zip(parts.split(targets, 1)))
            .zip(outputs)
            .map(
                |((logits, targets), ((losses, max), exp_sums))| CrossEntropyForward {
                    logits,
                    targets,
                    vocabulary,
                    label_smoothing,
                    losses,
                    max,
                    exp_sums,
                },
            )
            .collect();
        partition::for_each(tasks, |task| simd::run(instructions, task));
    }
}

/// The backward pass: the gradient of the logits, `scale · (softmax - smoothed target)`; zero in ignored rows.
#[derive(Debug)]
pub struct CrossEntropyBackward<'a> {
    /// `[rows, vocabulary]`
    pub logits: &'a [f32],
    /// `[rows]`
    pub targets: &'a [i64],
    /// The length of a row of logits.
    pub vocabulary: usize,
    /// As in the forward pass.
    pub label_smoothing: f32,
    /// The maximum of each row, from the forward pass.
    pub max: &'a [f32],
    /// The sum of exponentials of each row, from the forward pass.
    pub exp_sums: &'a [f32],
    /// The gradient of the reduced loss divided by the reduction's denominator.
    pub scale: f32,
    /// The result, `[rows, vocabulary]`.
    pub dlogits: &'a mut [f32],
}

impl CrossEntropyBackward<'_> {
    /// Computes all rows.
    ///
    /// # Panics
    /// When the sizes do not match, or a target is not in the vocabulary.
    pub fn run(self) {
        let Self {
            logits,
            targets,
            vocabulary,
            label_smoothing,
            max,
            exp_sums,
            scale,
            dlogits,
        } = self;
        let operation = "cross_entropy_backward";
        let rows = targets.len();
        check_length(operation, "logits", logits.len(), rows * vocabulary);
        check_length(operation, "max", max.len(), rows);
        check_length(operation, "exp_sums", exp_sums.len(), rows);
        check_length(operation, "dlogits", dlogits.len(), rows * vocabulary);
        check_targets(operation, targets, vocabulary);
        let instructions = simd::instructions();
        let parts = Partition::of_rows(rows, vocabulary);
        let inputs = parts.split(logits, vocabulary).zip(parts.split(targets, 1));
        let statistics = parts.split(max, 1).zip(parts.split(exp_sums, 1));
        let tasks: Vec<_> = (inputs.zip(statistics))
            .zip(parts.split_mut(dlogits, vocabulary))
            .map(
                |(((logits, targets), (max, exp_sums)), dlogits)| CrossEntropyBackward {
                    logits,
                    targets,
                    vocabulary,
                    label_smoothing,
                    max,
                    exp_sums,
                    scale,
                    dlogits,
                },
            )
            .collect();
        partition::for_each(tasks, |task| simd::run(instructions, task));
    }
}

fn check_targets(operation: &str, targets: &[i64], vocabulary: usize) {
    for (row, target) in targets.iter().enumerate() {
        assert!(
            *target == IGNORE_INDEX
                || usize::try_from(*target).is_ok_and(|target| target < vocabulary),
            "{operation}: the target {target} of row {row} is not in a vocabulary of {vocabulary}"
        );
    }
}

impl WithSimd for CrossEntropyForward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, &target) in self.targets.iter().enumerate() {
            if target == IGNORE_INDEX {
                (self.losses[row], self.max[row], self.exp_sums[row]) = (0.0, 0.0, 0.0);
                continue;
            }
            let logits = &self.logits[row * self.vocabulary..][..self.vocabulary];
            let (max, exp_sum, logit_sum) = if self.label_smoothing == 0.0 {
                row_sums(simd, &ExpSums, logits)
            } else {
                row_sums(simd, &ExpAndLogitSums, logits)
            };
            let log_exp_sum = exp_sum.ln();
            let target_loss = log_exp_sum + (max - logits[target as usize]);
            (self.max[row], self.exp_sums[row]) = (max, exp_sum);
            self.losses[row] = if self.label_smoothing == 0.0 {
                target_loss
            } else {
                let mean = logit_sum / self.vocabulary as f64;
                let uniform_loss = log_exp_sum + (f64::from(max) - mean) as f32;
                (1.0 - self.label_smoothing) * target_loss + self.label_smoothing * uniform_loss
            };
        }
    }
}

/// The maximum logit, the sum of `exp(logit - max)`, and the sum of logits if the op computes it.
#[inline(always)]
fn row_sums<S: Simd, T: BlockSums>(simd: S, op: &T, logits: &[f32]) -> (f32, f32, f64) {
    let (mut row_max, mut exp_sum, mut logit_sum) = (f32::NEG_INFINITY, 0.0, 0.0);
    for block in logits.chunks(BLOCK) {
        let block_max = max(simd, block);
        if block_max > row_max {
            // Rescale the sum so far to the new maximum.
            if exp_sum != 0.0 {
                exp_sum *= (row_max - block_max).exp();
            }
            row_max = block_max;
        }
        // `-∞ - -∞` is NaN: rows of minus infinity are summed without subtracting the maximum.
        let finite_max = if row_max == f32::NEG_INFINITY {
            0.0
        } else {
            row_max
        };
        let (block_exp_sum, shifted_logit_sum) = op.block_sums(simd, finite_max, block);
        exp_sum += block_exp_sum;
        // Logits are summed minus the maximum, which avoids cancellation; it is added back in f64.
        logit_sum += f64::from(shifted_logit_sum) + f64::from(finite_max) * block.len() as f64;
    }
    (row_max, exp_sum, logit_sum)
}

/// Sums over a block of logits: of `exp(logit - max)`, and of `logit - max`.
trait BlockSums {
    fn block_sums<S: Simd>(&self, simd: S, max: f32, block: &[f32]) -> (f32, f32);
}

struct ExpSums;

impl BlockSums for ExpSums {
    #[inline(always)]
    fn block_sums<S: Simd>(&self, simd: S, max: f32, block: &[f32]) -> (f32, f32) {
        let [exp_sum] = map_reduce(simd, &SubtractMax(max), [block], []);
        (exp_sum, 0.0)
    }
}

struct ExpAndLogitSums;

impl BlockSums for ExpAndLogitSums {
    #[inline(always)]
    fn block_sums<S: Simd>(&self, simd: S, max: f32, block: &[f32]) -> (f32, f32) {
        let [exp_sum, shifted_logit_sum] = map_reduce(simd, &SubtractMax(max), [block], []);
        (exp_sum, shifted_logit_sum)
    }
}

struct SubtractMax(f32);

impl VectorOp<1, 0, 1> for SubtractMax {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        let shifted = simd.sub_f32s(x, simd.splat_f32s(self.0));
        ([], [simd::exp_nonpositive(simd, shifted)])
    }
}

impl VectorOp<1, 0, 2> for SubtractMax {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 2]) {
        let shifted = simd.sub_f32s(x, simd.splat_f32s(self.0));
        ([], [simd::exp_nonpositive(simd, shifted), shifted])
    }
}

impl WithSimd for CrossEntropyBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, &target) in self.targets.iter().enumerate() {
            let range = row * self.vocabulary..(row + 1) * self.vocabulary;
            let dlogits = &mut self.dlogits[range.clone()];
            if target == IGNORE_INDEX {
                dlogits.fill(0.0);
                continue;
            }
            let op = LogitGradient {
                max: self.max[row],
                factor: self.scale / self.exp_sums[row],
                smoothing: self.scale * self.label_smoothing / self.vocabulary as f32,
            };
            map_reduce(simd, &op, [&self.logits[range]], [&mut *dlogits]);
            dlogits[target as usize] -= self.scale * (1.0 - self.label_smoothing);
        }
    }
}

struct LogitGradient {
    max: f32,
    /// Turns `exp(logit - max)` into the probability times the scale.
    factor: f32,
    smoothing: f32,
}

impl VectorOp<1, 1, 0> for LogitGradient {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        let exp = simd::exp_nonpositive(simd, simd.sub_f32s(x, simd.splat_f32s(self.max)));
        let scaled = simd.mul_f32s(exp, simd.splat_f32s(self.factor));
        ([simd.sub_f32s(scaled, simd.splat_f32s(self.smoothing))], [])
    }
}

/// The specification: one element at a time.
pub mod naive {
    use super::IGNORE_INDEX;

    fn log_sum_exp(row: &[f64]) -> f64 {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
    }

    /// The loss of each row.
    pub fn cross_entropy(
        logits: &[f64],
        targets: &[i64],
        vocabulary: usize,
        label_smoothing: f64,
    ) -> Vec<f64> {
        let loss = |(row, target): (usize, &i64)| {
            if *target == IGNORE_INDEX {
                return 0.0;
            }
            let logits = &logits[row * vocabulary..(row + 1) * vocabulary];
            let log_sum_exp = log_sum_exp(logits);
            let loss = log_sum_exp - logits[*target as usize];
            if label_smoothing == 0.0 {
                return loss;
            }
            let mean = logits.iter().map(|x| log_sum_exp - x).sum::<f64>() / vocabulary as f64;
            (1.0 - label_smoothing) * loss + label_smoothing * mean
        };
        targets.iter().enumerate().map(loss).collect()
    }

    /// The gradient of the logits, when each loss has the gradient `scale`.
    pub fn cross_entropy_backward(
        logits: &[f64],
        targets: &[i64],
        vocabulary: usize,
        label_smoothing: f64,
        scale: f64,
    ) -> Vec<f64> {
        let mut dlogits = vec![0.0; logits.len()];
        for (row, target) in targets.iter().enumerate() {
            if *target == IGNORE_INDEX {
                continue;
            }
            let range = row * vocabulary..(row + 1) * vocabulary;
            let log_sum_exp = log_sum_exp(&logits[range.clone()]);
            for i in range.clone() {
                let target_probability = match i == range.start + *target as usize {
                    true => 1.0 - label_smoothing + label_smoothing / vocabulary as f64,
                    false => label_smoothing / vocabulary as f64,
                };
                dlogits[i] = scale * ((logits[i] - log_sum_exp).exp() - target_probability);
            }
        }
        dlogits
    }
}

#[cfg(test)]
mod tests;
