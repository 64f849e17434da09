//! Which blocks of queries meet which keys in the backward pass.

use std::ops::Range;

use super::super::pattern::{Runs, end_of_block};
use super::super::scores::union;
use super::super::{KEYS, QUERIES};
use super::Group;

/// A block of queries and keys in whole panels, of which those of a run are seen.
pub(super) struct Meeting {
    pub block: Range<usize>,
    pub keys: Range<usize>,
    pub run: Range<usize>,
}

impl Group<'_> {
    /// All meetings of a head, those of the same tile of keys after each other: the sums of a tile's keys and values stay in
    /// cache.
    pub(super) fn meetings(&self, head: usize, panel: usize) -> Vec<Meeting> {
        let (queries, keys) = (self.shape.queries, self.shape.keys);
        let blocks = self.options.mask.blocks;
        let mut meetings = Vec::new();
        let mut first = 0;
        while first < queries {
            let end = end_of_block(blocks, first).min(first + QUERIES);
            let block = first..queries.min(end);
            first = block.end;
            let seen = union(self.options, self.shape, self.batch, block.clone());
            for run in Runs::new(blocks, self.shape, head, block.start) {
                let run = run.start.max(seen.start)..run.end.min(seen.end);
                let mut start = run.start / panel * panel;
                while start < run.end && !run.is_empty() {
                    // No further than the last key that is seen, in whole panels.
                    let tile_end = (start / KEYS + 1) * KEYS;
                    let end = tile_end.min(run.end.next_multiple_of(panel)).min(keys);
                    meetings.push(Meeting {
                        block: block.clone(),
                        keys: start..end,
                        run: run.clone(),
                    });
                    start = tile_end;
                }
            }
        }
        meetings.sort_by_key(|meeting| meeting.keys.start / KEYS);
        meetings
    }
}
