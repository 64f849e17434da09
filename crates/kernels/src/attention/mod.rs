//! Exact attention in tiles, with memory linear in the length. Dao et al. 2022; Rabe and Staats 2021.
//!
//! The forward pass keeps, of all weights, only the logarithm of each row's sum; the backward pass makes the weights again
//! from it.
//!
//! ```text
//!            keys, in tiles          For a block of queries, each tile of keys gives scores, which become
//!          ┌─────┬─────┬─────┐       exponentials under a running maximum, which weigh the tile's values.
//! queries  │█████│██   │     │       A tile that the mask empties is never touched.
//! in blocks│█████│█████│█    │
//!          └─────┴─────┴─────┘
//! ```

mod ahead;
mod backward;
mod bias;
mod few;
mod forward;
pub mod naive;
mod pattern;
mod reach;
mod running;
mod scores;
#[cfg(test)]
mod tests;
mod weights;

pub use backward::{Attended, Gradients, Upstream, backward};
pub use bias::{Bias, BiasOf};
pub use forward::forward;
pub use pattern::BlockPattern;
pub use weights::{WeightGradients, weights, weights_backward};

use std::ops::Range;

use crate::dropout::Dropout;
use crate::random::Key;

/// Queries per block, a multiple of the tile's rows.
const QUERIES: usize = 96;
/// Keys per tile, a multiple of [`PANEL`].
const KEYS: usize = 256;
/// A multiple of every panel's columns.
const PANEL: usize = 64;

const _: () = assert!(KEYS.is_multiple_of(PANEL));

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; each serves `heads / key_value_heads` query heads.
    pub key_value_heads: usize,
    /// Positions that ask.
    pub queries: usize,
    /// Positions that are asked.
    pub keys: usize,
    /// Width of a query and of a key.
    pub head_width: usize,
    /// Width of a value.
    pub value_width: usize,
}

impl Shape {
    fn check(&self) {
        assert!(
            self.key_value_heads > 0 && self.heads.is_multiple_of(self.key_value_heads),
            "attention: {} key-value heads do not divide {} heads",
            self.key_value_heads,
            self.heads
        );
        assert!(
            self.head_width > 0 && self.value_width > 0,
            "attention: {self:?} has heads of no width"
        );
    }

    /// Where the row of a query stands among all rows.
    fn row(&self, batch: usize, head: usize, query: usize) -> usize {
        (batch * self.heads + head) * self.queries + query
    }

    /// From a row of a tile of scores to the next, in whole panels: rows of few keys follow each other closely, and fill all sets of
    /// the first cache.
    #[inline(always)]
    fn line(&self) -> usize {
        self.keys.next_multiple_of(PANEL).clamp(PANEL, KEYS)
    }

    fn key_value_head(&self, head: usize) -> usize {
        head / (self.heads / self.key_value_heads)
    }
}

/// How far apart things are in memory; the numbers of one row follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From a sequence to the next.
    pub batch: usize,
    /// From a head to the next.
    pub head: usize,
    /// From a position to the next.
    pub row: usize,
}

impl Strides {
    /// Of `[batch, heads, length, width]` without gaps.
    pub fn heads_first(heads: usize, length: usize, width: usize) -> Self {
        Self {
            batch: heads * length * width,
            head: length * width,
            row: width,
        }
    }

    /// Of `[batch, length, heads, width]` without gaps, as projections give it.
    pub fn length_first(heads: usize, length: usize, width: usize) -> Self {
        Self {
            batch: heads * length * width,
            head: width,
            row: heads * width,
        }
    }

    /// Panics unless rows of `width` numbers stand apart from each other and inside `size` numbers: kernels write them from
    /// several threads.
    fn check_apart(&self, [batch, heads, length]: [usize; 3], width: usize, size: usize) {
        if batch * heads * length == 0 {
            return;
        }
        let mut axes = [(self.batch, batch), (self.head, heads), (self.row, length)];
        axes.sort_unstable();
        // From the innermost axis outwards: each step must lead beyond all that the axes inside reach.
        let (mut reach, mut apart) = (width, true);
        for (stride, count) in axes.into_iter().filter(|(_, count)| *count > 1) {
            apart &= stride >= reach;
            reach = stride.saturating_mul(count - 1).saturating_add(reach);
        }
        assert!(
            apart && reach <= size,
            "attention: {size} numbers in {self:?} are not {batch} × {heads} × {length} rows of {width} apart from each other"
        );
    }

    fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.batch + head * self.head + row * self.row
    }
}

/// Rows of heads, somewhere in memory.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Where they stand.
    pub strides: Strides,
}

impl<'a> Heads<'a> {
    fn row(&self, batch: usize, head: usize, row: usize, width: usize) -> &'a [f32] {
        let start = self.strides.at(batch, head, row);
        &self.data[start..start + width]
    }
}

/// Which keys a query may attend to. Queries are the last of the keys' positions; where there are more queries than keys,
/// the first stand before key 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masking<'a> {
    /// No key after the query's position.
    pub causal: bool,
    /// Only keys less than this far from the query's position.
    pub window: Option<usize>,
    /// Per sequence, the keys that are not padding.
    pub keys: Option<&'a [Range<usize>]>,
    /// Only the keys of some blocks.
    pub blocks: Option<&'a BlockPattern>,
}

impl Masking<'_> {
    fn check(&self, shape: &Shape) {
        if let Some(blocks) = self.blocks {
            assert!(
                blocks.fits(shape.heads, shape.queries, shape.keys),
                "attention: a pattern of blocks of {} for {} heads does not fit {shape:?}",
                blocks.block(),
                blocks.heads()
            );
        }
    }

    /// The keys that a query sees, the pattern of blocks aside: with these masks always one range.
    pub fn range(&self, shape: &Shape, batch: usize, query: usize) -> Range<usize> {
        // The query's position is `place - queries`, which may be below zero: the subtraction comes last.
        let place = shape.keys + query;
        let mut range = 0..shape.keys;
        if self.causal {
            range.end = (place + 1).saturating_sub(shape.queries);
        }
        if let Some(window) = self.window {
            let end = place.saturating_add(window).saturating_sub(shape.queries);
            range.start = (place + 1).saturating_sub(shape.queries.saturating_add(window));
            range.end = range.end.min(end);
        }
        if let Some(keys) = self.keys {
            range.start = range.start.max(keys[batch].start);
            range.end = range.end.min(keys[batch].end);
        }
        range.start = range.start.min(range.end);
        range
    }
}

/// Dropout on the weights; what is dropped is a function of the key, made again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightDropout {
    /// How much.
    pub dropout: Dropout,
    /// Of the generator.
    pub key: Key,
}

/// All that decides an attention besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Multiplies the scores.
    pub scale: f32,
    /// Who may attend to whom.
    pub mask: Masking<'a>,
    /// Added to the scores.
    pub bias: Option<Bias<'a>>,
    /// On the weights.
    pub dropout: Option<WeightDropout>,
}
