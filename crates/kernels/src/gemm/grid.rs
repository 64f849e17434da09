//! How C is partitioned into blocks, one task each.

use std::ops::Range;

use crate::microkernel::{MR, TileSize};

/// A partition of C: bands of rows, each split into equal blocks of whole tiles (the last in a row or column may be smaller).
///
/// Tasks within a band are numbered column by column: consecutive tasks share the same columns of B, which a thread packs once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    size: [usize; 2],
    /// Rows of a band.
    band: usize,
    /// Rows and columns of a block.
    block: [usize; 2],
    bands: usize,
    /// Rows of blocks in a band.
    down: usize,
    /// Columns of blocks.
    across: usize,
}

/// Rows of a band that are worth packing all of B for, even though another thread packs it too.
const MIN_BAND_ROWS: usize = 1024;
/// FMAs per thread, in units of 2^16, of a large product: some 20 ms with narrow tiles.
const LARGE_WORK: usize = 1 << 14;
/// [`LARGE_WORK`] where a thread packs its columns of B once for all its blocks.
const LARGE_WORK_CACHED: usize = 1 << 12;
/// FMAs, in the same units, that are worth a task: some 50 µs with wide tiles.
const TASK_WORK: usize = 64;

impl Grid {
    /// A grid for `threads` threads, each of which can cache `cached_columns` columns of packed B from block to block.
    pub fn new(
        size: [usize; 2],
        depth: usize,
        cached_columns: Option<usize>,
        tile: TileSize,
        threads: usize,
    ) -> Self {
        let [rows, columns] = size;
        let work = (rows * columns * depth) >> 16;
        // Several blocks per thread for large products, so that one delayed thread does not delay all: a millisecond or two each
        // with wide tiles, which do not pack contiguous rows of A.
        let several = match tile.is_wide() {
            true => (work >> 11).clamp(2 * threads, 8 * threads),
            false => 2 * threads,
        };
        if let (true, Some(cached)) = (
            tile.is_wide() && work >= threads * LARGE_WORK_CACHED,
            cached_columns,
        ) {
            // A band for each thread: it wrote these rows in the previous kernel and has them in its cache.
            let bands = if rows < threads * MIN_BAND_ROWS {
                1
            } else {
                threads
            };
            let across = columns.div_ceil(cached);
            let grid = Self::of(size, bands, across, tile);
            return grid.split_bands(several.div_ceil(bands * across));
        }
        let blocks = match work >= threads * LARGE_WORK {
            true => several,
            false => threads.min(work),
        };
        // FMAs in the time it takes to pack one value: half a cycle with vectors of eight, a whole one with sixteen.
        let packing = if tile.is_wide() { 32 } else { 8 };
        let grids = (1..=blocks.max(1))
            .map(|down| Self::of(size, down, blocks.div_ceil(down).max(1), tile));
        let grid = grids
            .min_by_key(|grid| grid.cost(threads, packing))
            .expect("there is at least one grid");
        // A thread's only block is split by rows, so that another thread can steal a part of it; packed B is cached meanwhile.
        match cached_columns.is_some_and(|cached| cached >= grid.block[1]) && blocks <= threads {
            true => grid.split_bands((work / threads / TASK_WORK).clamp(1, 4)),
            false => grid,
        }
    }

    /// A grid of `bands` bands, each with one row of `across` blocks.
    pub fn of([rows, columns]: [usize; 2], bands: usize, across: usize, tile: TileSize) -> Self {
        let block = [
            rows.div_ceil(bands).next_multiple_of(MR),
            columns.div_ceil(across).next_multiple_of(tile.nr),
        ];
        Self {
            size: [rows, columns],
            band: block[0],
            block,
            bands: rows.div_ceil(block[0].max(1)),
            down: 1,
            across: columns.div_ceil(block[1].max(1)),
        }
    }

    /// The grid with `down` rows of blocks in each band, or fewer if there are not enough rows.
    pub fn split_bands(self, down: usize) -> Self {
        let rows = self.band.div_ceil(down.max(1)).next_multiple_of(MR);
        Self {
            block: [rows, self.block[1]],
            down: self.band.div_ceil(rows.max(1)),
            ..self
        }
    }

    /// Estimated time per step of depth, in FMAs, of the thread with the most blocks: their FMAs, and packing at `packing` FMAs per
    /// value of B.
    fn cost(&self, threads: usize, packing: usize) -> usize {
        let [rows, columns] = self.block;
        // Rows count even where A is read in place: this discourages blocks side by side in short rows, where one thread's
        // prefetches would steal the cache lines that the other writes.
        let block = rows * columns + 8 * rows + packing * columns;
        self.tasks().div_ceil(threads) * block
    }

    pub fn tasks(&self) -> usize {
        self.bands * self.across * self.down
    }

    /// Columns of blocks.
    pub fn across(&self) -> usize {
        self.across
    }

    /// The rows of a task's block, possibly none in the last band.
    pub fn rows(&self, task: usize) -> Range<usize> {
        let band = task / (self.down * self.across) * self.band;
        let end = self.size[0].min(band + self.band);
        let first = band + task % self.down * self.block[0];
        first.min(end)..end.min(first + self.block[0])
    }

    /// The columns of a task's block.
    pub fn columns(&self, task: usize) -> Range<usize> {
        let first = task / self.down % self.across * self.block[1];
        first..self.size[1].min(first + self.block[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_element_is_in_one_block(
            rows in prop_oneof![0usize..50, 2000usize..5000],
            columns in prop_oneof![0usize..50, 1000usize..2000],
            depth in prop_oneof![0usize..50, 300usize..1100],
            cached in prop::option::of(prop::sample::select(vec![256usize, 512, 16384])),
            threads in 1usize..6,
        ) {
            for &instructions in simd::available() {
                let tile = TileSize::of(instructions);
                let grid = Grid::new([rows, columns], depth, cached, tile, threads);
                let blocks = (0..grid.tasks()).map(|it| (grid.rows(it), grid.columns(it)));
                let mut blocks: Vec<_> = blocks.filter(|(down, _)| !down.is_empty()).collect();
                blocks.sort_by_key(|(down, across)| (down.start, across.start));
                // Rows of blocks cover C from the first row to the last, and the blocks of each cover all columns.
                let mut next = [0, 0];
                for (down, across) in blocks {
                    prop_assert_eq!([down.start, across.start], next);
                    prop_assert!(!across.is_empty());
                    next = match across.end == columns {
                        true => [down.end, 0],
                        false => [down.start, across.end],
                    };
                }
                let end = if columns == 0 { 0 } else { rows };
                prop_assert_eq!(next, [end, 0]);
            }
        }
    }

    #[test]
    fn consecutive_tasks_of_a_thread_share_cached_columns() {
        let tile = TileSize {
            nr: 64,
            half_nr: 32,
        };
        for rows in [1200, 4096] {
            let grid = Grid::new([rows, 1536], 384, Some(512), tile, 2);
            assert!(grid.tasks() >= 4);
            let mut firsts: Vec<usize> =
                (0..grid.tasks()).map(|it| grid.columns(it).start).collect();
            firsts.dedup();
            // Few rows: one column of blocks after another. Many: the same within each thread's band.
            let expected: &[usize] = match rows {
                1200 => &[0, 512, 1024],
                _ => &[0, 512, 1024, 0, 512, 1024],
            };
            assert_eq!(firsts, expected);
        }
    }
}
