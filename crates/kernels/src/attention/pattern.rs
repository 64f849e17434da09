//! Block-sparse attention patterns: which blocks of keys each block of queries sees. BigBird: Zaheer et al. 2020.
//!
//! ```text
//!              key blocks
//!              0 1 2 3 4       Each row lists its key blocks: 0 [0, 1], 1 [0, 1, 2], 2 [0, 1, 2, 3] and so on. Contiguous
//! query   0    █ █             blocks are one run of keys; the work is proportional to the listed blocks.
//! blocks  1    █ █ █
//!         2    █ █ █ █
//! ```

use std::ops::Range;

use super::{KEY_TILE, Shape};

/// For each head and each block of queries, the visible blocks of keys. Queries and keys are both counted from zero and
/// divided by the block size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPattern {
    block_size: usize,
    /// `[heads or 1][blocks of queries]`, each a sorted list.
    rows: Vec<Vec<Vec<usize>>>,
}

impl BlockPattern {
    /// A pattern of blocks of `block_size` positions: for each head, or once for all heads, and for each block of queries, the
    /// sorted blocks of keys.
    ///
    /// # Panics
    /// When the block size is zero, there are no heads, heads have different numbers of rows, or a list is not in order.
    pub fn new(block_size: usize, rows: Vec<Vec<Vec<usize>>>) -> Self {
        assert!(block_size > 0, "block pattern: the block size is zero");
        assert!(!rows.is_empty(), "block pattern: there are no heads");
        for head in &rows {
            assert_eq!(
                head.len(),
                rows[0].len(),
                "block pattern: {} rows of one head do not match {} of another",
                head.len(),
                rows[0].len()
            );
            for row in head {
                assert!(
                    row.is_sorted_by(|a, b| a < b),
                    "block pattern: {row:?} is not in order"
                );
            }
        }
        Self { block_size, rows }
    }

    /// Positions per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Heads with a pattern of their own; one if all share it.
    pub fn heads(&self) -> usize {
        self.rows.len()
    }

    /// The blocks of keys visible to a query of a head.
    pub fn visible_blocks(&self, head: usize, query: usize) -> &[usize] {
        // One pattern serves all heads.
        &self.rows[head % self.rows.len()][query / self.block_size]
    }

    /// Whether a key is visible to a query of a head.
    pub fn is_visible(&self, head: usize, query: usize, key: usize) -> bool {
        let block = key / self.block_size;
        self.visible_blocks(head, query)
            .binary_search(&block)
            .is_ok()
    }

    /// Whether the pattern matches these numbers of heads, queries and keys.
    pub fn fits(&self, heads: usize, queries: usize, keys: usize) -> bool {
        let end = keys.div_ceil(self.block_size);
        let inside = |row: &Vec<usize>| row.last().is_none_or(|last| *last < end);
        (self.rows.len() == 1 || self.rows.len() == heads)
            && self.rows[0].len() == queries.div_ceil(self.block_size)
            && self.rows.iter().flatten().all(inside)
    }
}

/// The runs of contiguous keys listed for a block of queries; without a pattern, one run of all keys.
pub(super) struct KeyRuns<'a> {
    blocks: &'a [usize],
    block_size: usize,
    keys: usize,
}

impl<'a> KeyRuns<'a> {
    /// The runs of a query of a head; all queries of a block share them.
    pub fn new(
        pattern: Option<&'a BlockPattern>,
        shape: &Shape,
        head: usize,
        query: usize,
    ) -> Self {
        Self {
            blocks: pattern.map_or(&[0], |it| it.visible_blocks(head, query)),
            // Without a pattern, all keys are one block.
            block_size: pattern.map_or(shape.keys, BlockPattern::block_size),
            keys: shape.keys,
        }
    }
}

impl Iterator for KeyRuns<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let first = *self.blocks.first()?;
        let contiguous = (first..)
            .zip(self.blocks)
            .take_while(|(a, b)| a == *b)
            .count();
        self.blocks = &self.blocks[contiguous..];
        let end = (first + contiguous).saturating_mul(self.block_size);
        Some(first * self.block_size..end.min(self.keys))
    }
}

/// The part of a run in the tile that starts at `tile`, extended to whole panels but not beyond the last key.
pub(super) fn intersect_tile(
    run: &Range<usize>,
    tile: usize,
    panel: usize,
    keys: usize,
) -> Option<Range<usize>> {
    let start = (run.start / panel * panel).max(tile);
    let end = (tile + KEY_TILE)
        .min(run.end.next_multiple_of(panel))
        .min(keys);
    (!run.is_empty() && start < end && start < run.end).then_some(start..end)
}

/// The end of the block of queries that contains `first`: all of them see the same runs.
pub(super) fn block_end(pattern: Option<&BlockPattern>, first: usize) -> usize {
    pattern.map_or(usize::MAX, |it| (first / it.block_size + 1) * it.block_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_blocks_are_one_run() {
        let shape = Shape {
            batch: 1,
            heads: 1,
            key_value_heads: 1,
            queries: 4,
            keys: 11,
            head_width: 1,
            value_width: 1,
        };
        let pattern = BlockPattern::new(2, vec![vec![vec![0, 2, 3, 5], vec![]]]);
        assert!(pattern.fits(1, 4, 11) && pattern.fits(3, 3, 11));
        assert!(!pattern.fits(1, 5, 11) && !pattern.fits(1, 4, 10));
        let runs = |query| KeyRuns::new(Some(&pattern), &shape, 0, query).collect::<Vec<_>>();
        // The last block is truncated at the last key.
        assert_eq!(runs(1), [0..2, 4..8, 10..11]);
        assert_eq!(runs(2), []);
        let mut whole = KeyRuns::new(None, &shape, 0, 3);
        assert_eq!((whole.next(), whole.next()), (Some(0..11), None));
    }

    #[test]
    #[should_panic(expected = "is not in order")]
    fn lists_out_of_order_are_refused() {
        BlockPattern::new(2, vec![vec![vec![1, 1]]]);
    }
}
