//! Which tiles of a block's products matter: along the edge of a mask many hold nothing that is seen.
//!
//! What one row of a tile sees, all its rows multiply, with weights of zero: where such a value is NaN or infinite, their
//! results are NaN.

use std::ops::Range;

use super::scores::union;
use super::{KEYS, Options, QUERIES, Shape};
use crate::micro::ROWS;

/// At most so many groups of a tile's rows are among the keys, or among the queries.
const GROUPS: usize = KEYS.div_ceil(ROWS);

const _: () = assert!(QUERIES <= KEYS);

/// For each group of a tile's rows, the columns that one of them needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    spans: [[usize; 2]; GROUPS],
}

impl Reach {
    /// Every row needs the columns `0..columns`.
    #[inline(always)]
    pub fn all(columns: usize) -> Self {
        Self {
            spans: [[0, columns]; GROUPS],
        }
    }

    /// The keys of `tile` in a run of them, counted from the tile's first, that the queries of a block see.
    #[inline(always)]
    pub fn of_queries(
        options: &Options,
        shape: &Shape,
        batch: usize,
        block: &Range<usize>,
        tile: &Range<usize>,
        run: &Range<usize>,
    ) -> Self {
        let within = tile.start.max(run.start)..tile.end.min(run.end);
        let inside = |key: usize| key.clamp(within.start, within.end) - tile.start;
        let covers = |query: usize| {
            let seen = options.mask.range(shape, batch, query);
            seen.start <= within.start && within.end <= seen.end
        };
        let mut reach = Self {
            spans: [[inside(within.start), inside(within.end)]; GROUPS],
        };
        // Both ends of what is seen only move forward, so what the first and the last query see, all do.
        if covers(block.start) && covers(block.end - 1) {
            return reach;
        }
        let groups = block.clone().step_by(ROWS).zip(&mut reach.spans);
        for (first, span) in groups {
            let group = first..block.end.min(first + ROWS);
            let seen = union(options, shape, batch, group);
            *span = [inside(seen.start), inside(seen.end)];
        }
        reach
    }

    /// The other way round: for each group of columns, the rows of `0..rows` that need one of them.
    #[inline(always)]
    pub fn turned(&self, rows: usize, columns: usize) -> Self {
        let mut turned = Self::all(rows);
        let rows_of_groups = (0..rows).step_by(ROWS).zip(&self.spans);
        for (first, span) in (0..columns).step_by(ROWS).zip(&mut turned.spans) {
            let [mut from, mut to] = [rows, 0];
            for (row, [start, end]) in rows_of_groups.clone() {
                if *start < first + ROWS && first < *end {
                    from = from.min(row);
                    to = rows.min(row + ROWS);
                }
            }
            *span = [from, to];
        }
        turned
    }

    /// What the rows from `row` on need, where a group starts.
    #[inline(always)]
    pub fn at(&self, row: usize) -> Range<usize> {
        let [from, to] = self.spans[row / ROWS];
        from..to
    }
}
