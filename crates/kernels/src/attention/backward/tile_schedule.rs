//! The tiles of queries and keys of the backward pass, and their order.

use std::ops::Range;

use super::super::pattern::{KeyRuns, block_end, intersect_tile};
use super::super::scores::union_of_visible_keys;
use super::super::{KEY_TILE, QUERY_BLOCK};
use super::BackwardTask;

/// A block of queries and a tile of keys.
pub(super) struct Tile {
    pub queries: Range<usize>,
    /// Whole panels of keys.
    pub keys: Range<usize>,
    /// The contiguous visible keys; they may extend beyond the tile.
    pub run: Range<usize>,
}

/// All tiles of a head, ordered by their keys: the gradients of a tile's keys and values stay in cache.
pub(super) enum TileSchedule {
    /// Each block of queries sees one run of keys. Tiles are generated on the fly: a list would grow with the square of
    /// the length.
    Dense {
        /// Blocks of queries, and the keys that each sees.
        blocks: Vec<(Range<usize>, Range<usize>)>,
        keys: usize,
        panel: usize,
        /// The first key of the current tile.
        first_key: usize,
        next_block: usize,
    },
    /// The listed blocks of a pattern, which are few.
    BlockSparse(std::vec::IntoIter<Tile>),
}

impl Iterator for TileSchedule {
    type Item = Tile;

    fn next(&mut self) -> Option<Tile> {
        let (blocks, keys, panel, first_key, next_block) = match self {
            Self::BlockSparse(tiles) => return tiles.next(),
            Self::Dense {
                blocks,
                keys,
                panel,
                first_key,
                next_block,
            } => (blocks, *keys, *panel, first_key, next_block),
        };
        while *first_key < keys {
            while let Some((queries, run)) = blocks.get(*next_block) {
                *next_block += 1;
                if let Some(keys) = intersect_tile(run, *first_key, panel, keys) {
                    return Some(Tile {
                        queries: queries.clone(),
                        keys,
                        run: run.clone(),
                    });
                }
            }
            (*first_key, *next_block) = (*first_key + KEY_TILE, 0);
        }
        None
    }
}

impl BackwardTask<'_> {
    /// The tiles of a head.
    pub(super) fn tile_schedule(&self, head: usize, panel: usize) -> TileSchedule {
        let (queries, keys) = (self.shape.queries, self.shape.keys);
        let pattern = self.options.mask.blocks;
        let mut blocks = Vec::new();
        let mut first = 0;
        while first < queries {
            let end = block_end(pattern, first).min(first + QUERY_BLOCK);
            let block = first..queries.min(end);
            first = block.end;
            let visible =
                union_of_visible_keys(self.options, self.shape, self.batch, block.clone());
            blocks.push((block, visible));
        }
        if pattern.is_none() {
            return TileSchedule::Dense {
                blocks,
                keys,
                panel,
                first_key: 0,
                next_block: 0,
            };
        }
        let mut tiles = Vec::new();
        for (block, visible) in blocks {
            for run in KeyRuns::new(pattern, self.shape, head, block.start) {
                let run = run.start.max(visible.start)..run.end.min(visible.end);
                let first = run.start / panel * panel / KEY_TILE * KEY_TILE;
                for first_key in (first..run.end).step_by(KEY_TILE) {
                    tiles.extend(
                        intersect_tile(&run, first_key, panel, keys).map(|keys| Tile {
                            queries: block.clone(),
                            keys,
                            run: run.clone(),
                        }),
                    );
                }
            }
        }
        tiles.sort_by_key(|tile| tile.keys.start / KEY_TILE);
        TileSchedule::BlockSparse(tiles.into_iter())
    }
}
