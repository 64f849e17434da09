//! What a tile asks memory for while it computes.

use super::{ROWS, TURN};

/// Numbers of each row of A that comes next; and the tile's own part of C, which needs no naming.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Soon {
    /// Where the numbers of the first row of A start, which may be anywhere. Other rows are as far apart as the tile's own.
    pub a: *const f32,
    /// How many of each row; perhaps none.
    pub count: usize,
}

/// The turns of a depth, in groups.
///
/// Where there are many, there is a group for each row, which asks memory for the row at its beginning: all at once would hold up
/// the rows of B. Where there are few, or nothing is needed, all are one group.
pub(super) struct Turns {
    left: usize,
    each: usize,
    asked: usize,
}

/// So many turns take as long as memory.
const MANY: usize = 4 * ROWS;

impl Turns {
    /// Those of a depth. `ask` is called with the number of a row, once for each, if there is a reason to.
    #[inline(always)]
    pub fn new(depth: usize, soon: Option<Soon>, ask: impl Fn(usize)) -> Self {
        let left = depth / TURN;
        let asked = match soon {
            Some(_) if left >= MANY => 0,
            Some(_) => {
                for row in 0..ROWS {
                    ask(row);
                }
                ROWS
            }
            None => ROWS,
        };
        Self {
            left,
            each: left / ROWS,
            asked,
        }
    }

    /// The size of the next group; zero after the last.
    #[inline(always)]
    pub fn next(&mut self, ask: impl Fn(usize)) -> usize {
        let mut group = self.left;
        if self.asked < ROWS {
            ask(self.asked);
            self.asked += 1;
            if self.asked < ROWS {
                group = self.each;
            }
        }
        self.left -= group;
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn every_row_is_asked_for_once_and_every_turn_taken() {
        let soon = Soon {
            a: std::ptr::null(),
            count: 1,
        };
        for depth in 0..400 {
            for soon in [None, Some(soon)] {
                let asked = RefCell::new(Vec::new());
                let ask = |row| asked.borrow_mut().push(row);
                let mut turns = Turns::new(depth, soon, ask);
                let mut taken = 0;
                loop {
                    match turns.next(ask) {
                        0 => break,
                        group => taken += group,
                    }
                }
                assert_eq!(taken, depth / TURN);
                let expected: Vec<usize> = (0..soon.map_or(0, |_| ROWS)).collect();
                assert_eq!(asked.into_inner(), expected, "depth {depth}");
            }
        }
    }
}
