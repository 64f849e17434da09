//! Attention masks as a description; only the composed reference materializes them as a matrix.

use std::ops::Range;
use std::sync::Arc;

pub use attentive_kernels::attention::BlockPattern;
use burn::tensor::{Bool, Device, Shape, Tensor, TensorData};

/// Which keys each query may attend to.
///
/// The queries are the last of the keys' positions, so that one description serves both prefill and cached decoding: with
/// 10 keys and 2 queries, the queries are at positions 8 and 9. With more queries than keys, the first ones have negative
/// positions: with 2 keys and 3 queries, -1, 0 and 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    causal: bool,
    window: Option<usize>,
    keys: Option<Vec<Range<usize>>>,
    blocks: Option<Arc<BlockPattern>>,
}

impl Mask {
    /// Every query sees every key.
    pub fn none() -> Self {
        Self::default()
    }

    /// A query sees its own position and the earlier ones.
    pub fn causal() -> Self {
        Self {
            causal: true,
            ..Self::default()
        }
    }

    /// Only keys less than `size` positions away from the query are seen.
    pub fn with_window(mut self, size: usize) -> Self {
        self.window = Some(size);
        self
    }

    /// Only the keys in this range, one range per batch row, are seen; the others are padding.
    pub fn with_keys(mut self, keys: Vec<Range<usize>>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Only the blocks of keys that the pattern lists for a query's head and block are seen. Work is proportional to the
    /// number of listed blocks.
    pub fn with_blocks(mut self, blocks: Arc<BlockPattern>) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Whether later positions are hidden.
    pub fn is_causal(&self) -> bool {
        self.causal
    }

    /// The window size, if there is a window.
    pub fn window(&self) -> Option<usize> {
        self.window
    }

    /// The range of keys of each batch row that are not padding, if there is padding.
    pub fn keys(&self) -> Option<&[Range<usize>]> {
        self.keys.as_deref()
    }

    /// The block pattern, if there is one.
    pub fn blocks(&self) -> Option<&BlockPattern> {
        self.blocks.as_deref()
    }

    /// Whether the query at `position` may attend to `key` in batch row `row`, as far as causality, window and padding go.
    pub fn allows(&self, row: usize, position: isize, key: usize) -> bool {
        let distance = key as isize - position;
        (!self.causal || distance <= 0)
            && self
                .window
                .is_none_or(|size| distance.unsigned_abs() < size)
            && self
                .keys
                .as_ref()
                .is_none_or(|keys| keys[row].contains(&key))
    }

    /// Scores `[batch, heads, queries, keys]` with minus infinity at the masked pairs.
    pub(crate) fn apply(&self, scores: Tensor<4>) -> Tensor<4> {
        let [batch, heads, queries, keys] = scores.dims();
        match self.materialize(batch, queries, keys, &scores.device()) {
            Some(masked) => {
                // A `Shape`, because burn refuses arrays with a size of zero.
                let masked = masked.expand(Shape::from([batch, heads, queries, keys]));
                scores.mask_fill(masked, f32::NEG_INFINITY)
            }
            None => scores,
        }
    }

    /// The matrix `[batch or 1, heads of the pattern or 1, queries, keys]` of masked pairs; none if no pair is masked.
    pub fn materialize(
        &self,
        batch: usize,
        queries: usize,
        keys: usize,
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        // A single causal query is the last position: it sees every key.
        let one_range = self.keys.is_none() && self.blocks.is_none();
        if one_range && self.window.is_none() && (!self.causal || queries == 1) {
            return None;
        }
        if let Some(ranges) = &self.keys {
            assert_eq!(
                ranges.len(),
                batch,
                "mask: {} ranges of keys do not match a batch of {batch}",
                ranges.len()
            );
        }
        let rows = if self.keys.is_some() { batch } else { 1 };
        let heads = self.blocks.as_ref().map_or(1, |blocks| blocks.heads());
        let first = keys as isize - queries as isize;
        let mut masked = Vec::with_capacity(rows * heads * queries * keys);
        for row in 0..rows {
            for (head, query) in (0..heads).flat_map(|head| (0..queries).map(move |it| (head, it)))
            {
                let position = first + query as isize;
                let listed = |key| {
                    let blocks = self.blocks.as_ref();
                    blocks.is_none_or(|blocks| blocks.is_visible(head, query, key))
                };
                let is_masked = |key| !(self.allows(row, position, key) && listed(key));
                masked.extend((0..keys).map(is_masked));
            }
        }
        let data = TensorData::new(masked, [rows, heads, queries, keys]);
        Some(Tensor::from_data(data, device))
    }
}
