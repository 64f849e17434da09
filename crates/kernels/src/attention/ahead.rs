//! What a task asks memory for before it needs it. Rows of a head are short and far apart: the processor does not guess where the
//! next stand, and a head of a hundred positions would wait for them a fifth of its time.

use super::{Heads, Shape};
use crate::simd;

/// Rows that are needed after a block of queries: one of each for every query.
pub(super) struct Ahead {
    /// Of the results, which are written when the block is done.
    context: Rows,
    /// Of queries, keys and values of the head that comes next.
    next: Option<[Rows; 3]>,
}

/// Numbers of the keys and values of a head that stay in the second cache until it is their turn.
const FEW_NUMBERS: usize = 1 << 16;

impl Ahead {
    /// For the queries of a head from `first` on, whose results stand at `context` and so far apart.
    #[inline(always)]
    pub fn new(
        (context, stride): (*const f32, usize),
        [query, key, value]: [Heads; 3],
        shape: &Shape,
        [batch, head]: [usize; 2],
        first: usize,
    ) -> Self {
        let (width, wide) = (shape.head_width, shape.value_width);
        let next = (shape.keys * (width + wide) <= FEW_NUMBERS).then(|| {
            let number = batch * shape.heads + head + 1;
            let [batch, head] = [number / shape.heads, number % shape.heads];
            let shared = shape.key_value_head(head);
            [
                Rows::of(query, [batch, head, first], width),
                Rows::of(key, [batch, shared, first], width),
                Rows::of(value, [batch, shared, first], wide),
            ]
        });
        let context = Rows {
            start: context,
            stride,
            width: wide,
        };
        Self { context, next }
    }

    /// Asks for the rows of one query of the block.
    #[inline(always)]
    pub fn fetch(&self, row: usize) {
        simd::fetch(self.context.at(row), self.context.width);
        for rows in self.next.iter().flatten() {
            simd::fetch_far(rows.at(row), rows.width);
        }
    }
}

/// Rows somewhere in memory, or beyond what is there: they are only asked for.
struct Rows {
    start: *const f32,
    stride: usize,
    width: usize,
}

impl Rows {
    #[inline(always)]
    fn of(heads: Heads, [batch, head, first]: [usize; 3], width: usize) -> Self {
        let start = heads.strides.at(batch, head, first);
        Self {
            start: heads.data.as_ptr().wrapping_add(start),
            stride: heads.strides.row,
            width,
        }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> *const f32 {
        self.start.wrapping_add(row * self.stride)
    }
}
