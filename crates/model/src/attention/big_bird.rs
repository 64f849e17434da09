//! BigBird: every block of queries against the blocks near it, the first, the last, and a few that are drawn. Zaheer et al.
//! 2020.
//!
//! ```text
//!              key blocks
//!              0 1 2 3 4 5 6
//! query   0    █ █ █ █ █ █ █      The ends see all and are seen by all,
//! blocks  1    █ █ █   ◇   █      the others see their neighbours,
//!         2    █ █ █ █   ◇ █      and with random_blocks = 1 one more (◇).
//!         3    █ ◇ █ █ █   █
//!         4    █   ◇ █ █ █ █
//!         5    █ ◇     █ █ █
//!         6    █ █ █ █ █ █ █
//! ```
//!
//! The draws are a function of the seed, the head, the number of blocks and the block, not a state: two passes over equally
//! long sequences see alike. Layers with the same seed draw alike too.
//!
//! A model may draw in training alone. Each drawn block is the first one elsewhere, which is then counted so many times more,
//! as Hugging Face's BigBird has it: the exponentials of its keys weigh so many times as much.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use attentive_tensor::{
    Attended, BlockPattern, Mask, Purpose, Randomness, ScoreBias, Scores, attention_weights,
    attention_with_log_sums, merge_attended,
};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use rand::RngCore;
use serde::{Deserialize, Serialize};

use super::heads::with_heads;
use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place, RelativePositions, Role,
};
use crate::checks::{refuse, size};
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of BigBird's attention.
    pub struct BigBirdConfig {
        /// Positions per block; the last block of a sequence may be shorter.
        pub block: usize,
        /// How many blocks each block draws from those that it would not see otherwise; all of them if there are fewer.
        pub random_blocks: usize,
        /// What the draws are a function of, besides head, number of blocks and block.
        #[serde(default)]
        pub seed: u64,
        /// When blocks are drawn; always unless said.
        #[serde(default, skip_serializing_if = "is_always")]
        pub draws: BlockDraws,
        /// Up to which length every position sees all others; blocks are cut from longer sequences only.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub full_length: usize,
    }
}

/// When a block draws others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockDraws {
    /// In every pass.
    #[default]
    Always,
    /// In training; elsewhere the first block counts once more in the place of each that would be drawn.
    InTraining,
}

fn is_always(draws: &BlockDraws) -> bool {
    *draws == BlockDraws::Always
}

fn is_zero(length: &usize) -> bool {
    *length == 0
}

impl AttentionSettings for BigBirdConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        // The last block sees all and is seen by all: there is no order in it.
        place.serve(path, "BigBird", &[Role::Bidirectional])?;
        size(&format!("{path}.block"), self.block)?;
        if self.draws == BlockDraws::InTraining && place.positions == RelativePositions::Bias {
            return refuse(
                &format!("{path}.draws"),
                "a bias by distance has no place in a block that counts again; use always, or other positions",
            );
        }
        if self.full_length > place.length {
            let problem = format!("is out of range; use 0 to {}", place.length);
            return refuse(
                &format!("{path}.full_length"),
                format!("{} {problem}", self.full_length),
            );
        }
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let shared = self.shared();
        let pattern = Pattern::BigBird(BigBird {
            block: self.block,
            heads: shared.heads,
            random: RandomBlocks::Drawn {
                count: self.random_blocks,
                seed: self.seed,
            },
            draws: self.draws,
            full_length: self.full_length,
        });
        Attention::MultiHead(MultiHead::new(&shared, pattern, place, initial))
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        // The blocks at the ends are too few to count.
        let seen = self.random_blocks.saturating_add(5);
        let met = match length <= self.full_length {
            true => length,
            false => seen.saturating_mul(self.block).min(length),
        };
        self.shared().operations(width, met as u64)
    }

    fn cache(&self, _width: usize) -> CacheSize {
        CacheSize::Impossible
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "BigBird attention, blocks of {} and {} random ones",
            self.block, self.random_blocks
        );
        self.shared().describe(&kind, width)
    }
}

/// Softmax attention to some blocks.
#[derive(Module, Debug)]
pub struct BigBird {
    #[module(skip)]
    block: usize,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    random: RandomBlocks,
    #[module(skip)]
    draws: BlockDraws,
    #[module(skip)]
    full_length: usize,
}

/// Where the random blocks come from.
#[derive(Clone, Debug)]
enum RandomBlocks {
    /// From a generator.
    Drawn { count: usize, seed: u64 },
    /// From somebody who drew them elsewhere, `[heads][blocks - 2]`.
    Given(Arc<Vec<Vec<Vec<usize>>>>),
}

impl BigBird {
    /// The same pattern with random blocks that were drawn elsewhere: for each head, and for each block but the first and the
    /// last, the blocks that it sees besides. It then serves sequences of that many blocks alone.
    #[must_use]
    pub fn with_random_blocks(self, blocks: Vec<Vec<Vec<usize>>>) -> Self {
        let random = RandomBlocks::Given(Arc::new(blocks));
        Self { random, ..self }
    }

    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let [_, _, length, _] = heads.key.dims();
        let blocks = length.div_ceil(self.block);
        let again = self.first_again(&call);
        let mut mask = call.mask(0);
        if length > self.full_length {
            // Made anew for each pass: the lists are nothing beside the products of the blocks that they name.
            mask = mask.with_blocks(Arc::new(self.blocks(blocks, again == 0)));
        }
        let scores = Scores {
            bias: call.bias(&heads),
            ..Scores::new(mask, call.scale(&heads))
        };
        if again == 0 || blocks < 3 || length <= self.full_length {
            return call.attend(heads, &scores);
        }
        // The queries that draw.
        let inner = self.block..(blocks - 1) * self.block;
        match call.wants_weights() {
            true => self.weighed(heads, scores, inner, again, call),
            false => self.gathered(heads, &scores, inner, again, call),
        }
    }

    /// How many times more the first block counts for those that draw.
    fn first_again(&self, call: &Call) -> usize {
        match (self.draws, &self.random) {
            (BlockDraws::InTraining, RandomBlocks::Drawn { count, .. })
                if call.pass.randomness.is_none() =>
            {
                *count
            }
            _ => 0,
        }
    }

    /// Attention to the pattern, and to the first block as often again, merged into one.
    fn gathered(
        &self,
        heads: Projected,
        scores: &Scores,
        inner: Range<usize>,
        again: usize,
        call: Call,
    ) -> Context {
        let [_, _, length, _] = heads.query.dims();
        let Projected { query, key, value } = heads;
        let once = attention_with_log_sums(
            query.clone(),
            key.clone(),
            value.clone(),
            scores,
            call.dropout,
            None,
        );
        let first = |x: Tensor<4>| x.narrow(2, 0, self.block);
        let real = call.real.iter().flatten();
        let real: Vec<Range<usize>> = real
            .map(|it| it.start.min(self.block)..it.end.min(self.block))
            .collect();
        let mask = match call.real {
            Some(_) => Mask::none().with_keys(real),
            None => Mask::none(),
        };
        let more = Scores::new(mask, scores.scale);
        let more = attention_with_log_sums(query, first(key), first(value), &more, 0.0, None);
        let weights = |query: usize| match inner.contains(&query) {
            true => (again as f32).ln(),
            false => f32::NEG_INFINITY,
        };
        let weights = (0..length).map(weights).collect();
        let weights = TensorData::new(weights, [1, 1, length]);
        let weights = Tensor::<3>::from_data(weights, &more.log_sums.device());
        let more = Attended {
            log_sums: more.log_sums + weights,
            ..more
        };
        Context {
            context: merge_attended(vec![once, more]).context,
            weights: None,
        }
    }

    /// The same by the matrix of weights, for an observer who asks for it.
    fn weighed(
        &self,
        heads: Projected,
        scores: Scores,
        inner: Range<usize>,
        again: usize,
        mut call: Call,
    ) -> Context {
        let [_, _, length, _] = heads.query.dims();
        let more = (again as f32).ln_1p();
        let pair = |query: usize, key: usize| match inner.contains(&query) && key < self.block {
            true => more,
            false => 0.0,
        };
        let pairs = (0..length).flat_map(|query| (0..length).map(move |key| (query, key)));
        let pairs = pairs.map(|(query, key)| pair(query, key)).collect();
        let pairs = TensorData::new(pairs, [1, 1, length, length]);
        let pairs = Tensor::from_data(pairs, &heads.query.device());
        let scores = Scores {
            bias: Some(ScoreBias::Pairs(pairs)),
            ..scores
        };
        let weights = attention_weights(heads.query, heads.key, &scores);
        call.weigh(weights, heads.value)
    }

    /// Who sees whom among so many blocks, those that are drawn among them if said.
    ///
    /// # Panics
    /// When random blocks were given, and for another number of heads or blocks.
    fn blocks(&self, blocks: usize, drawn: bool) -> BlockPattern {
        let inner = blocks.saturating_sub(2);
        let rows = (0..self.heads).map(|head| {
            let drawn = match drawn {
                true => self.random_blocks(head, blocks),
                false => vec![Vec::new(); inner],
            };
            assert_eq!(
                drawn.len(),
                inner,
                "BigBird attention: random blocks of {} blocks do not fit {inner}",
                drawn.len()
            );
            let mut rows = vec![(0..blocks).collect::<Vec<usize>>()];
            for (index, drawn) in drawn.into_iter().enumerate() {
                let block = index + 1;
                let mut seen = BTreeSet::from([0, block - 1, block, block + 1, blocks - 1]);
                seen.extend(drawn);
                rows.push(seen.into_iter().collect());
            }
            rows.resize(blocks, (0..blocks).collect());
            rows
        });
        BlockPattern::new(self.block, rows.collect())
    }

    /// For each block but the first and the last, those that it sees besides.
    fn random_blocks(&self, head: usize, blocks: usize) -> Vec<Vec<usize>> {
        match &self.random {
            RandomBlocks::Drawn { count, seed } => {
                let step = ((blocks as u64) << 32) | head as u64;
                let mut randomness = Randomness::new(Purpose::Pattern, *seed, step);
                let inner = 1..blocks.saturating_sub(1);
                inner
                    .map(|block| draw(block, blocks, *count, randomness.next_generator()))
                    .collect()
            }
            RandomBlocks::Given(given) => {
                let heads = given.len();
                assert_eq!(
                    heads, self.heads,
                    "BigBird attention: random blocks of {heads} heads do not fit {}",
                    self.heads
                );
                given[head].clone()
            }
        }
    }
}

/// Draws without replacement from the blocks that are neither at the ends nor next to `block`.
///
/// ```text
/// 0 | 1 … block - 2 | block - 1, block, block + 1 | block + 2 … blocks - 2 | blocks - 1
///     the first part                                the second part
/// ```
fn draw(block: usize, blocks: usize, count: usize, mut generator: impl RngCore) -> Vec<usize> {
    let first = block.saturating_sub(2);
    let second = (blocks - 1).saturating_sub(block + 2);
    let rest = first + second;
    // Floyd's way (Bentley and Floyd 1987): as many draws as there are to be, whatever they are drawn from.
    let mut drawn = BTreeSet::new();
    for last in rest.saturating_sub(count)..rest {
        let below = last as u128 + 1;
        let chosen = ((u128::from(generator.next_u64()) * below) >> 64) as usize;
        if !drawn.insert(chosen) {
            drawn.insert(last);
        }
    }
    let place = |index: usize| match index < first {
        true => index + 1,
        false => index - first + block + 2,
    };
    drawn.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(heads: usize, count: usize, seed: u64) -> BigBird {
        BigBird {
            block: 1,
            heads,
            random: RandomBlocks::Drawn { count, seed },
            draws: BlockDraws::Always,
            full_length: 0,
        }
    }

    #[test]
    fn a_block_sees_its_neighbours_the_ends_and_as_many_others_as_asked_for() {
        for (blocks, count) in [(1, 2), (2, 2), (3, 1), (5, 1), (6, 1), (9, 0), (30, 3)] {
            let seen = pattern(2, count, 4).blocks(blocks, true);
            for (head, block) in (0..2).flat_map(|head| (0..blocks).map(move |it| (head, it))) {
                let row = seen.seen(head, block);
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
    fn draws_are_a_function_and_every_block_can_be_drawn() {
        let one = pattern(2, 2, 7).blocks(20, true);
        assert_eq!(one, pattern(2, 2, 7).blocks(20, true));
        assert_ne!(one, pattern(2, 2, 8).blocks(20, true));
        let row = |head, block| one.seen(head, block).to_vec();
        assert!((1..19).any(|block| row(0, block) != row(1, block)));
        let drawn = (0..200).flat_map(|seed| pattern(1, 1, seed).random_blocks(0, 12)[4].clone());
        let mut times = [0; 12];
        drawn.for_each(|block| times[block] += 1);
        // Block 5 draws one of 1, 2, 3, 7, 8, 9 and 10, each 200 / 7 ≈ 29 times.
        for (block, times) in times.into_iter().enumerate() {
            let possible = [1, 2, 3, 7, 8, 9, 10].contains(&block);
            let expected = if possible { 12..50 } else { 0..1 };
            assert!(expected.contains(&times), "{block} is drawn {times} times");
        }
    }
}
