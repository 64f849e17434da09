//! Exact tiled attention with memory linear in the length. FlashAttention: Dao et al. 2022; Rabe and Staats 2021.
//!
//! The forward pass saves only the log-sum-exp of each row of scores; the backward pass recomputes the weights from it.
//!
//! ```text
//!            keys, in tiles          Each block of queries goes over its tiles of keys: scores, online softmax,
//!          ┌─────┬─────┬─────┐       and the weighted values accumulate.
//! queries  │█████│██   │     │       Fully masked tiles are skipped.
//! in blocks│█████│█████│█    │
//!          └─────┴─────┴─────┘
//! ```

mod backward;
mod bias;
mod decode;
mod forward;
mod key_ranges;
pub mod naive;
mod online_softmax;
mod pattern;
mod prefetch;
mod scores;
#[cfg(test)]
mod tests;
mod weights;

pub use backward::{Gradients, OutputGradients, SavedForward, backward};
pub use bias::{Bias, BiasLayout};
pub use forward::forward;
pub use pattern::BlockPattern;
pub use weights::{WeightGradients, weights, weights_backward};

use std::ops::Range;

use crate::dropout::Dropout;
use crate::random::Key;

/// Queries per block, a multiple of the microkernel's rows.
const QUERY_BLOCK: usize = 96;
/// Keys per tile, a multiple of [`PANEL`].
const KEY_TILE: usize = 256;
/// A multiple of the panel width of every instruction set.
const PANEL: usize = 64;

const _: () = assert!(KEY_TILE.is_multiple_of(PANEL));

/// The sizes of an attention operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; each serves `heads / key_value_heads` query heads.
    pub key_value_heads: usize,
    /// Query positions.
    pub queries: usize,
    /// Key positions.
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
            "attention: {self:?} has heads of width zero"
        );
    }

    /// Index of a query's row in `[batch, heads, queries]`.
    fn row_index(&self, batch: usize, head: usize, query: usize) -> usize {
        (batch * self.heads + head) * self.queries + query
    }

    /// Row stride of a tile of scores, in whole panels. With few keys it is short, so that the rows spread over all sets of L1.
    #[inline(always)]
    fn score_stride(&self) -> usize {
        self.keys.next_multiple_of(PANEL).clamp(PANEL, KEY_TILE)
    }

    fn key_value_head(&self, head: usize) -> usize {
        head / (self.heads / self.key_value_heads)
    }
}

/// Strides in f32s; each row is contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Between sequences.
    pub batch: usize,
    /// Between heads.
    pub head: usize,
    /// Between positions.
    pub row: usize,
}

impl Strides {
    /// Contiguous `[batch, heads, length, width]`.
    pub fn heads_first(heads: usize, length: usize, width: usize) -> Self {
        Self {
            batch: heads * length * width,
            head: length * width,
            row: width,
        }
    }

    /// Contiguous `[batch, length, heads, width]`, as projections return it.
    pub fn length_first(heads: usize, length: usize, width: usize) -> Self {
        Self {
            batch: heads * length * width,
            head: width,
            row: heads * width,
        }
    }

    /// Panics unless rows of `width` are disjoint and inside a buffer of `size`: several threads write them.
    fn check_disjoint(&self, [batch, heads, length]: [usize; 3], width: usize, size: usize) {
        if batch * heads * length == 0 {
            return;
        }
        let mut axes = [(self.batch, batch), (self.head, heads), (self.row, length)];
        axes.sort_unstable();
        // From the innermost axis outwards: each stride must exceed the extent of the axes inside.
        let (mut extent, mut is_disjoint) = (width, true);
        for (stride, count) in axes.into_iter().filter(|(_, count)| *count > 1) {
            is_disjoint &= stride >= extent;
            extent = stride.saturating_mul(count - 1).saturating_add(extent);
        }
        assert!(
            is_disjoint && extent <= size,
            "attention: {self:?} does not describe {batch} × {heads} × {length} disjoint rows of {width} in a buffer of {size}"
        );
    }

    fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.batch + head * self.head + row * self.row
    }
}

/// A strided view of the rows of all heads.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The values.
    pub data: &'a [f32],
    /// Their layout.
    pub strides: Strides,
}

impl<'a> Heads<'a> {
    fn row(&self, batch: usize, head: usize, row: usize, width: usize) -> &'a [f32] {
        let start = self.strides.at(batch, head, row);
        &self.data[start..start + width]
    }
}

/// Which keys a query may attend to. The queries are at the last positions of the keys; where there are more queries than
/// keys, the first are before key 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masking<'a> {
    /// Masks keys after the query's position.
    pub causal: bool,
    /// Sliding window: only keys less than this far from the query's position.
    pub window: Option<usize>,
    /// The unpadded keys of each sequence.
    pub keys: Option<&'a [Range<usize>]>,
    /// Block-sparse pattern.
    pub blocks: Option<&'a BlockPattern>,
}

impl Masking<'_> {
    fn check(&self, shape: &Shape) {
        if let Some(blocks) = self.blocks {
            assert!(
                blocks.fits(shape.heads, shape.queries, shape.keys),
                "attention: a block pattern with blocks of {} for {} heads does not match {shape:?}",
                blocks.block_size(),
                blocks.heads()
            );
        }
    }

    /// The keys visible to a query, before the block pattern: always one range.
    pub fn visible_keys(&self, shape: &Shape, batch: usize, query: usize) -> Range<usize> {
        // The query's position is `offset - queries`, which may be negative: subtract last.
        let offset = shape.keys + query;
        let mut range = 0..shape.keys;
        if self.causal {
            range.end = (offset + 1).saturating_sub(shape.queries);
        }
        if let Some(window) = self.window {
            let end = offset.saturating_add(window).saturating_sub(shape.queries);
            range.start = (offset + 1).saturating_sub(shape.queries.saturating_add(window));
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

/// Dropout on the attention weights; the mask is a function of the key, recomputed in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionDropout {
    /// The dropout probability.
    pub dropout: Dropout,
    /// Key of the random generator.
    pub key: Key,
}

/// Arguments of attention besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Multiplies the scores.
    pub scale: f32,
    /// Which keys each query attends to.
    pub mask: Masking<'a>,
    /// Added to the scores.
    pub bias: Option<Bias<'a>>,
    /// Dropout on the weights.
    pub dropout: Option<AttentionDropout>,
}
