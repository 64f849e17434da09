//! A pattern of blocks: which blocks of keys each block of queries sees. BigBird: Zaheer et al. 2020.
//!
//! ```text
//!              key blocks
//!              0 1 2 3 4       Each row lists what it sees: 0 [0, 1], 1 [0, 1, 2], 2 [0, 1, 2, 3] and so on. Neighbours
//! query   0    █ █             are one run of keys, so work is proportional to the blocks that are listed.
//! blocks  1    █ █ █
//!         2    █ █ █ █
//! ```

use std::ops::Range;

use super::{KEYS, Shape};

/// For each head and each block of queries, the blocks of keys that are seen. A query's block is its index among the queries
/// divided by the size of a block, a key's its index among the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPattern {
    block: usize,
    /// `[heads or 1][blocks of queries]`, each a sorted list.
    rows: Vec<Vec<Vec<usize>>>,
}

impl BlockPattern {
    /// A pattern of blocks of `block` positions: for each head, or once for all heads, and for each block of queries, the
    /// blocks of keys, in order.
    ///
    /// # Panics
    /// When a block has no size, there are no heads, heads have different numbers of rows, or a list is not in order.
    pub fn new(block: usize, rows: Vec<Vec<Vec<usize>>>) -> Self {
        assert!(block > 0, "block pattern: blocks have no size");
        assert!(!rows.is_empty(), "block pattern: there are no heads");
        for head in &rows {
            assert_eq!(
                head.len(),
                rows[0].len(),
                "block pattern: {} rows of one head do not fit {} of another",
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
        Self { block, rows }
    }

    /// Positions per block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Heads that have a pattern of their own; one if all share it.
    pub fn heads(&self) -> usize {
        self.rows.len()
    }

    /// The blocks of keys that a query of a head sees.
    pub fn seen(&self, head: usize, query: usize) -> &[usize] {
        // One pattern serves all heads.
        &self.rows[head % self.rows.len()][query / self.block]
    }

    /// Whether a query of a head sees a key.
    pub fn sees(&self, head: usize, query: usize, key: usize) -> bool {
        let block = key / self.block;
        self.seen(head, query).binary_search(&block).is_ok()
    }

    /// Whether the pattern is one of so many heads, queries and keys.
    pub fn fits(&self, heads: usize, queries: usize, keys: usize) -> bool {
        let end = keys.div_ceil(self.block);
        let inside = |row: &Vec<usize>| row.last().is_none_or(|last| *last < end);
        (self.rows.len() == 1 || self.rows.len() == heads)
            && self.rows[0].len() == queries.div_ceil(self.block)
            && self.rows.iter().flatten().all(inside)
    }
}

/// The runs of keys that a block of queries sees of all: those of its pattern, or one of all keys.
pub(super) struct Runs<'a> {
    blocks: &'a [usize],
    block: usize,
    keys: usize,
}

impl<'a> Runs<'a> {
    /// For a query of a head, and all others of its block.
    pub fn new(
        pattern: Option<&'a BlockPattern>,
        shape: &Shape,
        head: usize,
        query: usize,
    ) -> Self {
        Self {
            blocks: pattern.map_or(&[0], |it| it.seen(head, query)),
            // Without a pattern, all keys are one block.
            block: pattern.map_or(shape.keys, BlockPattern::block),
            keys: shape.keys,
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let first = *self.blocks.first()?;
        let neighbours = (first..)
            .zip(self.blocks)
            .take_while(|(a, b)| a == *b)
            .count();
        self.blocks = &self.blocks[neighbours..];
        let end = (first + neighbours).saturating_mul(self.block);
        Some(first * self.block..end.min(self.keys))
    }
}

/// The keys of a run in the tile that starts at `tile`, in whole panels and no further than the last key that is seen.
pub(super) fn in_tile(
    run: &Range<usize>,
    tile: usize,
    panel: usize,
    keys: usize,
) -> Option<Range<usize>> {
    let start = (run.start / panel * panel).max(tile);
    let end = (tile + KEYS).min(run.end.next_multiple_of(panel)).min(keys);
    (!run.is_empty() && start < end && start < run.end).then_some(start..end)
}

/// Where the block of queries ends that begins at `first`: all of them see the same runs.
pub(super) fn end_of_block(pattern: Option<&BlockPattern>, first: usize) -> usize {
    pattern.map_or(usize::MAX, |it| (first / it.block + 1) * it.block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
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
        let runs = |query| Runs::new(Some(&pattern), &shape, 0, query).collect::<Vec<_>>();
        // The last block is cut off by the end of the keys.
        assert_eq!(runs(1), [0..2, 4..8, 10..11]);
        assert_eq!(runs(2), []);
        let mut whole = Runs::new(None, &shape, 0, 3);
        assert_eq!((whole.next(), whole.next()), (Some(0..11), None));
    }

    #[test]
    #[should_panic(expected = "is not in order")]
    fn lists_out_of_order_are_refused() {
        BlockPattern::new(2, vec![vec![vec![1, 1]]]);
    }
}
