//! How a product is cut into pieces, one task each.

use std::ops::Range;

use crate::micro::{ROWS, TileSize};

/// How C is shared out: pieces of whole tiles, all but the last of a row or column equally large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    size: [usize; 2],
    piece: [usize; 2],
    across: usize,
    down: usize,
}

impl Grid {
    pub fn new([rows, columns]: [usize; 2], depth: usize, tile: TileSize, threads: usize) -> Self {
        let of = |down: usize, across: usize| {
            let piece = [
                rows.div_ceil(down).next_multiple_of(ROWS),
                columns.div_ceil(across).next_multiple_of(tile.columns),
            ];
            Self {
                size: [rows, columns],
                piece,
                down: rows.div_ceil(piece[0].max(1)),
                across: columns.div_ceil(piece[1].max(1)),
            }
        };
        // A piece should be worth the trouble. Very large products get several per thread, so that a thread that is held up
        // does not hold up all. Wide tiles, which pack no rows of A that follow each other, lose little by pieces of a
        // millisecond or two.
        let most = (rows * columns * depth) >> 16;
        let several = match tile.is_wide() {
            true => (most >> 11).clamp(2 * threads, 8 * threads),
            false => 2 * threads,
        };
        let wanted = if most >= (threads << 14) {
            several
        } else {
            threads.min(most)
        };
        // Products in the time of a packed number: half a cycle where a vector has eight numbers, a whole one where it has
        // sixteen.
        let packed = if tile.is_wide() { 32 } else { 8 };
        let grids = (1..=wanted.max(1)).map(|down| of(down, wanted.div_ceil(down).max(1)));
        grids
            .min_by_key(|grid| grid.cost(threads, packed))
            .expect("there is at least one grid")
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
        self.across * self.down
    }

    /// Pieces side by side.
    pub fn across(&self) -> usize {
        self.across
    }

    pub fn rows(&self, piece: usize) -> Range<usize> {
        let first = piece / self.across * self.piece[0];
        first..self.size[0].min(first + self.piece[0])
    }

    pub fn columns(&self, piece: usize) -> Range<usize> {
        let first = piece % self.across * self.piece[1];
        first..self.size[1].min(first + self.piece[1])
    }
}
