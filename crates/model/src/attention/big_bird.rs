//! BigBird: block-sparse attention to neighbouring blocks, the first, the last, and a few random ones. Zaheer et al. 2020.
//!
//! ```text
//!              key blocks
//!              0 1 2 3 4 5 6
//! query   0    █ █ █ █ █ █ █      The first and last block attend to all, and all to them.
//! blocks  1    █ █ █   ◇   █      The others attend to their neighbours
//!         2    █ █ █ █   ◇ █      and, with random_blocks = 1, to one random block (◇).
//!         3    █ ◇ █ █ █   █
//!         4    █   ◇ █ █ █ █
//!         5    █ ◇     █ █ █
//!         6    █ █ █ █ █ █ █
//! ```
//!
//! The random blocks are a function of the seed, the head, the number of blocks and the block, not a state: passes over equally
//! long sequences have the same pattern, and so have layers with the same seed.
//!
//! With [`BlockSampling::InTraining`], as in Hugging Face's BigBird, every random block is the first block outside of training,
//! and each repetition of a block counts: the exponentials of its scores are summed that many times.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use attentive_tensor::{
    BlockPattern, Mask, PartialAttention, Purpose, Randomness, Scores, attention_weights,
    attention_with_log_sum_exp, merge_partial_attention,
};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use rand::RngCore;
use serde::{Deserialize, Serialize};

use super::heads::with_heads;
use super::pairwise_bias::pairwise_bias;
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionSettings, AttentionSpec, CacheSize, Pattern, RelativePositions, Role,
};
use crate::checks::{refuse, size};
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

with_heads! {
    /// Settings of BigBird's attention.
    pub struct BigBirdConfig {
        /// Positions per block; the last block of a sequence may be shorter.
        pub block: usize,
        /// How many random blocks each block attends to besides its fixed ones; all others if there are fewer.
        pub random_blocks: usize,
        /// The seed of the random blocks.
        #[serde(default)]
        pub seed: u64,
        /// When random blocks are sampled; always by default.
        #[serde(default, skip_serializing_if = "is_always")]
        pub sampling: BlockSampling,
        /// The longest sequence with full attention; only longer ones are block-sparse.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub full_length: usize,
    }

    /// `heads` heads with blocks of `block` positions, each of which attends to `random_blocks` random ones.
    new(block: usize, random_blocks: usize) {
        seed: 0,
        sampling: BlockSampling::default(),
        full_length: 0,
    }
}

impl BigBirdConfig {
    setters! {
        with_seed(seed: u64);
        with_sampling(sampling: BlockSampling);
        with_full_length(full_length: usize);
    }
}

/// When random blocks are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockSampling {
    /// In every pass.
    #[default]
    Always,
    /// In training. Otherwise the first block is repeated in place of each random block.
    InTraining,
}

fn is_always(sampling: &BlockSampling) -> bool {
    *sampling == BlockSampling::Always
}

fn is_zero(length: &usize) -> bool {
    *length == 0
}

impl AttentionSettings for BigBirdConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        // All blocks attend to the last one, so the pattern cannot be causal.
        spec.require_role(path, "BigBird", &[Role::Bidirectional])?;
        size(&format!("{path}.block"), self.block)?;
        if self.sampling == BlockSampling::InTraining && spec.positions == RelativePositions::Bias {
            return refuse(
                &format!("{path}.sampling"),
                "a relative position bias is not defined for the repeated first block of in_training; use always, or other positions",
            );
        }
        if self.full_length > spec.length {
            let problem = format!("is out of range; use 0 to {}", spec.length);
            return refuse(
                &format!("{path}.full_length"),
                format!("{} {problem}", self.full_length),
            );
        }
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let heads_config = self.heads_config();
        let pattern = Pattern::BigBird(BigBird {
            block: self.block,
            heads: heads_config.heads,
            random: RandomBlocks::Sampled {
                count: self.random_blocks,
                seed: self.seed,
            },
            sampling: self.sampling,
            full_length: self.full_length,
        });
        heads_config.build(pattern, spec, initializer)
    }

    fn flops(&self, width: usize, length: usize, _role: Role) -> Flops {
        // The first and last query blocks are too few to count.
        let blocks = self.random_blocks.saturating_add(5);
        let keys = match length <= self.full_length {
            true => length,
            false => blocks.saturating_mul(self.block).min(length),
        };
        self.heads_config().flops(width, keys as u64)
    }

    fn cache(&self, _width: usize) -> CacheSize {
        CacheSize::Impossible
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "BigBird attention, blocks of {} and {} random ones",
            self.block, self.random_blocks
        );
        self.heads_config().describe(&kind, width)
    }
}

/// Block-sparse softmax attention.
#[derive(Module, Debug)]
pub struct BigBird {
    #[module(skip)]
    block: usize,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    random: RandomBlocks,
    #[module(skip)]
    sampling: BlockSampling,
    #[module(skip)]
    full_length: usize,
}

/// Where the random blocks come from.
#[derive(Clone, Debug)]
enum RandomBlocks {
    /// Sampled from a seed.
    Sampled { count: usize, seed: u64 },
    /// Given by a parity test, `[heads][blocks - 2]`.
    Given(Arc<Vec<Vec<Vec<usize>>>>),
}

impl BigBird {
    /// The same pattern with given random blocks: for each head and for each block but the first and the last, the blocks that
    /// it attends to besides the fixed ones. Only sequences of that many blocks are supported then.
    ///
    /// Not in the documentation: it is for parity tests, since the reference samples its blocks with NumPy's generator.
    #[doc(hidden)]
    #[must_use]
    pub fn with_random_blocks(self, blocks: Vec<Vec<Vec<usize>>>) -> Self {
        let random = RandomBlocks::Given(Arc::new(blocks));
        Self { random, ..self }
    }

    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let [_, _, length, _] = qkv.key.dims();
        let blocks = length.div_ceil(self.block);
        let repetitions = self.first_block_repetitions(&context);
        let mut mask = context.mask(0);
        if length > self.full_length {
            // Rebuilt in each pass: building the lists is cheap beside attention to their blocks.
            mask = mask.with_blocks(Arc::new(self.block_pattern(blocks, repetitions == 0)));
        }
        let scores = Scores {
            bias: context.bias(&qkv),
            ..Scores::new(mask, qkv.scale())
        };
        if repetitions == 0 || blocks < 3 || length <= self.full_length {
            return context.attend(qkv, &scores);
        }
        // The queries with random blocks.
        let inner = self.block..(blocks - 1) * self.block;
        match context.wants_weights() {
            true => self.attend_with_weights(qkv, scores, inner, repetitions, context),
            false => self.attend_repeated(qkv, &scores, inner, repetitions, context),
        }
    }

    /// How many times the first block is repeated in place of random ones.
    fn first_block_repetitions(&self, context: &AttendContext) -> usize {
        match (self.sampling, &self.random) {
            (BlockSampling::InTraining, RandomBlocks::Sampled { count, .. })
                if context.pass.randomness.is_none() =>
            {
                *count
            }
            _ => 0,
        }
    }

    /// Attention to the fixed pattern, merged with the repetitions of the first block.
    fn attend_repeated(
        &self,
        qkv: Qkv,
        scores: &Scores,
        inner: Range<usize>,
        repetitions: usize,
        context: AttendContext,
    ) -> PatternOutput {
        let [_, _, length, _] = qkv.query.dims();
        let Qkv { query, key, value } = qkv;
        let fixed = attention_with_log_sum_exp(
            query.clone(),
            key.clone(),
            value.clone(),
            scores,
            context.dropout,
            None,
        );
        let first = |x: Tensor<4>| x.narrow(2, 0, self.block);
        let non_padding = context.non_padding.iter().flatten();
        let non_padding: Vec<Range<usize>> = non_padding
            .map(|it| it.start.min(self.block)..it.end.min(self.block))
            .collect();
        let mask = match context.non_padding {
            Some(_) => Mask::none().with_keys(non_padding),
            None => Mask::none(),
        };
        let scores = Scores::new(mask, scores.scale);
        let repeated =
            attention_with_log_sum_exp(query, first(key), first(value), &scores, 0.0, None);
        // Summing exponentials n times adds ln n to the logarithm of their sum.
        let log_repetitions = |query: usize| match inner.contains(&query) {
            true => (repetitions as f32).ln(),
            false => f32::NEG_INFINITY,
        };
        let log_repetitions = (0..length).map(log_repetitions).collect();
        let log_repetitions = TensorData::new(log_repetitions, [1, 1, length]);
        let log_repetitions =
            Tensor::<3>::from_data(log_repetitions, &repeated.log_sum_exp.device());
        let repeated = PartialAttention {
            log_sum_exp: repeated.log_sum_exp + log_repetitions,
            ..repeated
        };
        PatternOutput {
            output: merge_partial_attention(vec![fixed, repeated]).context,
            weights: None,
        }
    }

    /// The same, materializing the attention weights for an observer that requests them.
    fn attend_with_weights(
        &self,
        qkv: Qkv,
        scores: Scores,
        inner: Range<usize>,
        repetitions: usize,
        mut context: AttendContext,
    ) -> PatternOutput {
        let [_, _, length, _] = qkv.query.dims();
        let log_count = (repetitions as f32).ln_1p();
        let bias =
            |_: usize, query: usize, key: usize| match inner.contains(&query) && key < self.block {
                true => log_count,
                false => 0.0,
            };
        let device = qkv.query.device();
        let scores = Scores {
            bias: Some(pairwise_bias([1, length, length], &device, bias)),
            ..scores
        };
        let weights = attention_weights(qkv.query, qkv.key, &scores);
        context.attend_with_weights(weights, qkv.value)
    }

    /// The pattern for this many blocks, with or without random blocks.
    ///
    /// # Panics
    /// When random blocks were given for another number of heads or blocks.
    fn block_pattern(&self, blocks: usize, with_random: bool) -> BlockPattern {
        let inner = blocks.saturating_sub(2);
        let rows = (0..self.heads).map(|head| {
            let random = match with_random {
                true => self.random_blocks(head, blocks),
                false => vec![Vec::new(); inner],
            };
            assert_eq!(
                random.len(),
                inner,
                "BigBird attention: random blocks of {} blocks do not match {inner}",
                random.len()
            );
            let mut rows = vec![(0..blocks).collect::<Vec<usize>>()];
            for (index, random) in random.into_iter().enumerate() {
                let block = index + 1;
                let mut row = BTreeSet::from([0, block - 1, block, block + 1, blocks - 1]);
                row.extend(random);
                rows.push(row.into_iter().collect());
            }
            rows.resize(blocks, (0..blocks).collect());
            rows
        });
        BlockPattern::new(self.block, rows.collect())
    }

    /// The random blocks of each block but the first and the last.
    fn random_blocks(&self, head: usize, blocks: usize) -> Vec<Vec<usize>> {
        match &self.random {
            RandomBlocks::Sampled { count, seed } => {
                let step = ((blocks as u64) << 32) | head as u64;
                let mut randomness = Randomness::new(Purpose::Pattern, *seed, step);
                let inner = 1..blocks.saturating_sub(1);
                inner
                    .map(|block| sample(block, blocks, *count, randomness.next_generator()))
                    .collect()
            }
            RandomBlocks::Given(given) => {
                let heads = given.len();
                assert_eq!(
                    heads, self.heads,
                    "BigBird attention: random blocks of {heads} heads do not match {}",
                    self.heads
                );
                given[head].clone()
            }
        }
    }
}

/// Samples without replacement from the blocks that are neither the first, the last, `block` nor its neighbours.
///
/// ```text
/// 0 | 1 … block - 2 | block - 1, block, block + 1 | block + 2 … blocks - 2 | blocks - 1
///     before                                        after
/// ```
fn sample(block: usize, blocks: usize, count: usize, mut generator: impl RngCore) -> Vec<usize> {
    let before = block.saturating_sub(2);
    let after = (blocks - 1).saturating_sub(block + 2);
    let candidates = before + after;
    // Floyd's algorithm (Bentley and Floyd 1987): as many random numbers as samples, however many candidates there are.
    let mut sampled = BTreeSet::new();
    for last in candidates.saturating_sub(count)..candidates {
        let bound = last as u128 + 1;
        let chosen = ((u128::from(generator.next_u64()) * bound) >> 64) as usize;
        if !sampled.insert(chosen) {
            sampled.insert(last);
        }
    }
    let block_at = |index: usize| match index < before {
        true => index + 1,
        false => index - before + block + 2,
    };
    sampled.into_iter().map(block_at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(heads: usize, count: usize, seed: u64) -> BigBird {
        BigBird {
            block: 1,
            heads,
            random: RandomBlocks::Sampled { count, seed },
            sampling: BlockSampling::Always,
            full_length: 0,
        }
    }

    #[test]
    fn a_block_attends_to_its_neighbours_the_ends_and_as_many_random_blocks_as_configured() {
        for (blocks, count) in [(1, 2), (2, 2), (3, 1), (5, 1), (6, 1), (9, 0), (30, 3)] {
            let pattern = pattern(2, count, 4).block_pattern(blocks, true);
            for (head, block) in (0..2).flat_map(|head| (0..blocks).map(move |it| (head, it))) {
                let row = pattern.visible_blocks(head, block);
                if block == 0 || block == blocks - 1 {
                    assert!(row.iter().copied().eq(0..blocks));
                    continue;
                }
                let fixed = BTreeSet::from([0, block - 1, block, block + 1, blocks - 1]);
                assert!(fixed.iter().all(|it| row.contains(it)));
                assert_eq!(row.len(), (fixed.len() + count).min(blocks));
                assert!(row.iter().all(|it| *it < blocks));
            }
        }
    }

    #[test]
    fn random_blocks_are_a_function_of_the_seed_and_every_block_can_be_sampled() {
        let one = pattern(2, 2, 7).block_pattern(20, true);
        assert_eq!(one, pattern(2, 2, 7).block_pattern(20, true));
        assert_ne!(one, pattern(2, 2, 8).block_pattern(20, true));
        let row = |head, block| one.visible_blocks(head, block).to_vec();
        assert!((1..19).any(|block| row(0, block) != row(1, block)));
        let sampled = (0..200).flat_map(|seed| pattern(1, 1, seed).random_blocks(0, 12)[4].clone());
        let mut times = [0; 12];
        sampled.for_each(|block| times[block] += 1);
        // Block 5 samples one of 1, 2, 3, 7, 8, 9 and 10, each 200 / 7 ≈ 29 times.
        for (block, times) in times.into_iter().enumerate() {
            let possible = [1, 2, 3, 7, 8, 9, 10].contains(&block);
            let expected = if possible { 12..50 } else { 0..1 };
            assert!(
                expected.contains(&times),
                "{block} is sampled {times} times"
            );
        }
    }
}
