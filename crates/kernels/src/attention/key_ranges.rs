//! Visible key ranges of a tile: along the edge of a mask, microkernel tiles that hold no visible key are skipped.
//!
//! Each row of a row group multiplies all keys that any row of the group sees, with a weight of zero where it does not
//! see them itself: a NaN or infinite value there makes its result NaN.

use std::ops::Range;

use super::scores::union_of_visible_keys;
use super::{KEY_TILE, Options, QUERY_BLOCK, Shape};
use crate::microkernel::MR;

/// Row groups of the microkernel in a tile, whether its rows are queries or keys.
const MAX_ROW_GROUPS: usize = KEY_TILE.div_ceil(MR);

const _: () = assert!(QUERY_BLOCK <= KEY_TILE);

/// For each group of [`MR`] rows of a tile, the columns that any of them needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRanges {
    ranges: [[usize; 2]; MAX_ROW_GROUPS],
}

impl KeyRanges {
    /// Every row needs the columns `0..columns`.
    #[inline(always)]
    pub fn all(columns: usize) -> Self {
        Self {
            ranges: [[0, columns]; MAX_ROW_GROUPS],
        }
    }

    /// The keys of `tile` and `run` that the queries of a block see, relative to the start of the tile.
    #[inline(always)]
    pub fn visible(
        options: &Options,
        shape: &Shape,
        batch: usize,
        block: &Range<usize>,
        tile: &Range<usize>,
        run: &Range<usize>,
    ) -> Self {
        let within = tile.start.max(run.start)..tile.end.min(run.end);
        let inside = |key: usize| key.clamp(within.start, within.end) - tile.start;
        let sees_all = |query: usize| {
            let visible = options.mask.visible_keys(shape, batch, query);
            visible.start <= within.start && within.end <= visible.end
        };
        let mut key_ranges = Self {
            ranges: [[inside(within.start), inside(within.end)]; MAX_ROW_GROUPS],
        };
        // Both ends of the visible range are monotonic in the query: what the first and the last query see, all do.
        if sees_all(block.start) && sees_all(block.end - 1) {
            return key_ranges;
        }
        let groups = block.clone().step_by(MR).zip(&mut key_ranges.ranges);
        for (first, range) in groups {
            let group = first..block.end.min(first + MR);
            let visible = union_of_visible_keys(options, shape, batch, group);
            *range = [inside(visible.start), inside(visible.end)];
        }
        key_ranges
    }

    /// For each group of columns, the rows of `0..rows` that need any of them.
    #[inline(always)]
    pub fn transposed(&self, rows: usize, columns: usize) -> Self {
        let mut transposed = Self::all(rows);
        let row_groups = (0..rows).step_by(MR).zip(&self.ranges);
        for (first, range) in (0..columns).step_by(MR).zip(&mut transposed.ranges) {
            let [mut from, mut to] = [rows, 0];
            for (row, [start, end]) in row_groups.clone() {
                if *start < first + MR && first < *end {
                    from = from.min(row);
                    to = rows.min(row + MR);
                }
            }
            *range = [from, to];
        }
        transposed
    }

    /// The columns that the row group starting at `row` needs.
    #[inline(always)]
    pub fn at(&self, row: usize) -> Range<usize> {
        let [from, to] = self.ranges[row / MR];
        from..to
    }
}
