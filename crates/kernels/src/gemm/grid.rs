//! How a product is cut into pieces, one task each.

use std::ops::Range;

use crate::micro::{ROWS, TileSize};

/// How C is shared out: bands of rows, and in each of them pieces of whole tiles, all but the last of a row or column equally large.
///
/// Inside a band, pieces are counted downwards: those that follow each other have the same columns, which a thread packs once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    size: [usize; 2],
    /// Rows of a band.
    band: usize,
    /// Rows and columns of a piece.
    piece: [usize; 2],
    bands: usize,
    /// Pieces of a band below each other.
    down: usize,
    /// And side by side.
    across: usize,
}

/// So many rows are worth packing the columns that they meet, though another thread packs them, too.
const MANY_ROWS: usize = 1024;
/// Multiplications, in units of 2^16, that each thread has of a large product: some twenty milliseconds of tiles that are not wide.
const LARGE: usize = 1 << 14;
/// The same where a thread packs columns once for all its pieces.
const LARGE_IF_KEPT: usize = 1 << 12;
/// Multiplications, in the same units, that are worth a task: some fifty microseconds of wide tiles.
const TASK: usize = 64;

impl Grid {
    /// A grid for so many threads. A thread may keep so many packed columns from piece to piece.
    pub fn new(
        size: [usize; 2],
        depth: usize,
        kept_columns: Option<usize>,
        tile: TileSize,
        threads: usize,
    ) -> Self {
        let [rows, columns] = size;
        let most = (rows * columns * depth) >> 16;
        // Large products get several pieces per thread, so that a thread that is held up does not hold up all: of a millisecond
        // or two with wide tiles, which pack no rows of A that follow each other.
        let several = match tile.is_wide() {
            true => (most >> 11).clamp(2 * threads, 8 * threads),
            false => 2 * threads,
        };
        if let (true, Some(kept)) = (
            tile.is_wide() && most >= threads * LARGE_IF_KEPT,
            kept_columns,
        ) {
            // A band for each thread: it wrote these rows in the last job and has them in its cache.
            let bands = if rows < threads * MANY_ROWS {
                1
            } else {
                threads
            };
            let across = columns.div_ceil(kept);
            let grid = Self::of(size, bands, across, tile);
            return grid.finer(several.div_ceil(bands * across));
        }
        // A piece should be worth the trouble.
        let wanted = match most >= threads * LARGE {
            true => several,
            false => threads.min(most),
        };
        // Products in the time of a packed number: half a cycle where a vector has eight numbers, a whole one where it has
        // sixteen.
        let packed = if tile.is_wide() { 32 } else { 8 };
        let grids = (1..=wanted.max(1))
            .map(|down| Self::of(size, down, wanted.div_ceil(down).max(1), tile));
        let grid = grids
            .min_by_key(|grid| grid.cost(threads, packed))
            .expect("there is at least one grid");
        // A thread's only piece is cut downwards, so that who is done first can take a part of it; the packed columns are kept.
        match kept_columns.is_some_and(|kept| kept >= grid.piece[1]) && wanted <= threads {
            true => grid.finer((most / threads / TASK).clamp(1, 4)),
            false => grid,
        }
    }

    /// So many bands, and in each so many pieces side by side.
    pub fn of([rows, columns]: [usize; 2], bands: usize, across: usize, tile: TileSize) -> Self {
        let piece = [
            rows.div_ceil(bands).next_multiple_of(ROWS),
            columns.div_ceil(across).next_multiple_of(tile.columns),
        ];
        Self {
            size: [rows, columns],
            band: piece[0],
            piece,
            bands: rows.div_ceil(piece[0].max(1)),
            down: 1,
            across: columns.div_ceil(piece[1].max(1)),
        }
    }

    /// The same with so many pieces below each other in a band, or fewer where there are not enough rows.
    pub fn finer(self, down: usize) -> Self {
        let rows = self.band.div_ceil(down.max(1)).next_multiple_of(ROWS);
        Self {
            piece: [rows, self.piece[1]],
            down: self.band.div_ceil(rows.max(1)),
            ..self
        }
    }

    /// An estimate of time: the products of the thread with most pieces, and what its pieces pack, a number of B taking as long
    /// as so many products.
    fn cost(&self, threads: usize, packed: usize) -> usize {
        let [rows, columns] = self.piece;
        // In the time of one product. Rows count even where A is read in place: it keeps pieces from lying side by side in
        // short rows, where one thread's prefetches take the lines that the other writes.
        let piece = rows * columns + 8 * rows + packed * columns;
        self.pieces().div_ceil(threads) * piece
    }

    pub fn pieces(&self) -> usize {
        self.bands * self.across * self.down
    }

    /// Pieces side by side.
    pub fn across(&self) -> usize {
        self.across
    }

    /// Those of the last band may be none.
    pub fn rows(&self, piece: usize) -> Range<usize> {
        let band = piece / (self.down * self.across) * self.band;
        let end = self.size[0].min(band + self.band);
        let first = band + piece % self.down * self.piece[0];
        first.min(end)..end.min(first + self.piece[0])
    }

    pub fn columns(&self, piece: usize) -> Range<usize> {
        let first = piece / self.down % self.across * self.piece[1];
        first..self.size[1].min(first + self.piece[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_result_is_in_one_piece(
            rows in prop_oneof![0usize..50, 2000usize..5000],
            columns in prop_oneof![0usize..50, 1000usize..2000],
            depth in prop_oneof![0usize..50, 300usize..1100],
            kept in prop::option::of(prop::sample::select(vec![256usize, 512, 16384])),
            threads in 1usize..6,
        ) {
            for &instructions in simd::available() {
                let tile = TileSize::of(instructions);
                let grid = Grid::new([rows, columns], depth, kept, tile, threads);
                let pieces = (0..grid.pieces()).map(|it| (grid.rows(it), grid.columns(it)));
                let mut pieces: Vec<_> = pieces.filter(|(down, _)| !down.is_empty()).collect();
                pieces.sort_by_key(|(down, across)| (down.start, across.start));
                // Rows of pieces follow each other from the first row to the last, and so do pieces in each of them.
                let mut next = [0, 0];
                for (down, across) in pieces {
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
    fn a_thread_meets_the_columns_that_it_keeps_without_a_break() {
        let tile = TileSize {
            columns: 64,
            narrow: 32,
        };
        for rows in [1200, 4096] {
            let grid = Grid::new([rows, 1536], 384, Some(512), tile, 2);
            assert!(grid.pieces() >= 4);
            let mut firsts: Vec<usize> = (0..grid.pieces())
                .map(|it| grid.columns(it).start)
                .collect();
            firsts.dedup();
            // Few rows: all of a column, then the next. Many: so in the upper half, which is the first thread's, then in the lower.
            let expected: &[usize] = match rows {
                1200 => &[0, 512, 1024],
                _ => &[0, 512, 1024, 0, 512, 1024],
            };
            assert_eq!(firsts, expected);
        }
    }
}
