//! Which blocks of queries meet which keys in the backward pass.

use std::ops::Range;

use super::super::pattern::{Runs, end_of_block, in_tile};
use super::super::scores::union;
use super::super::{KEYS, QUERIES};
use super::Group;

/// A block of queries and keys in whole panels, of which those of a run are seen.
pub(super) struct Meeting {
    pub block: Range<usize>,
    pub keys: Range<usize>,
    pub run: Range<usize>,
}

/// All meetings of a head, those of the same tile of keys after each other: the sums of a tile's keys and values stay in
/// cache.
pub(super) enum Meetings {
    /// Each block of queries sees one run of keys. The meetings are found on the way: a list of them would grow with the
    /// square of the length.
    OfRuns {
        /// Blocks of queries and the keys that they see.
        blocks: Vec<(Range<usize>, Range<usize>)>,
        keys: usize,
        panel: usize,
        tile: usize,
        next: usize,
    },
    /// A pattern lists few.
    Listed(std::vec::IntoIter<Meeting>),
}

impl Iterator for Meetings {
    type Item = Meeting;

    fn next(&mut self) -> Option<Meeting> {
        let (blocks, keys, panel, tile, next) = match self {
            Self::Listed(meetings) => return meetings.next(),
            Self::OfRuns {
                blocks,
                keys,
                panel,
                tile,
                next,
            } => (blocks, *keys, *panel, tile, next),
        };
        while *tile < keys {
            while let Some((block, run)) = blocks.get(*next) {
                *next += 1;
                if let Some(keys) = in_tile(run, *tile, panel, keys) {
                    return Some(Meeting {
                        block: block.clone(),
                        keys,
                        run: run.clone(),
                    });
                }
            }
            (*tile, *next) = (*tile + KEYS, 0);
        }
        None
    }
}

impl Group<'_> {
    /// The meetings of a head.
    pub(super) fn meetings(&self, head: usize, panel: usize) -> Meetings {
        let (queries, keys) = (self.shape.queries, self.shape.keys);
        let pattern = self.options.mask.blocks;
        let mut blocks = Vec::new();
        let mut first = 0;
        while first < queries {
            let end = end_of_block(pattern, first).min(first + QUERIES);
            let block = first..queries.min(end);
            first = block.end;
            let seen = union(self.options, self.shape, self.batch, block.clone());
            blocks.push((block, seen));
        }
        if pattern.is_none() {
            return Meetings::OfRuns {
                blocks,
                keys,
                panel,
                tile: 0,
                next: 0,
            };
        }
        let mut meetings = Vec::new();
        for (block, seen) in blocks {
            for run in Runs::new(pattern, self.shape, head, block.start) {
                let run = run.start.max(seen.start)..run.end.min(seen.end);
                let first = run.start / panel * panel / KEYS * KEYS;
                for tile in (first..run.end).step_by(KEYS) {
                    meetings.extend(in_tile(&run, tile, panel, keys).map(|keys| Meeting {
                        block: block.clone(),
                        keys,
                        run: run.clone(),
                    }));
                }
            }
        }
        meetings.sort_by_key(|meeting| meeting.keys.start / KEYS);
        Meetings::Listed(meetings.into_iter())
    }
}
