//! What a task asks memory for before it needs it. Rows of a head are short and far apart: the processor does not guess where the
//! next stand, and heads of a hundred positions waited for them a tenth of their time.

use super::{Heads, Shape, Strides};
use crate::simd;

/// Rows that are needed after a block of queries.
pub(super) struct Ahead {
    /// Of the results, which are written when the block is done.
    context: Places,
    /// Of queries, keys and values of the next head, in as many positions as the block has queries: where there are more keys,
    /// only a part of them.
    next: [Option<Places>; 3],
}

/// Numbers of the keys and values of a head that stay in the second cache until it is their turn.
const FEW_NUMBERS: usize = 1 << 15;

impl Ahead {
    /// For the queries of a head from `first` on, whose results stand there.
    #[inline(always)]
    pub fn new(
        context: Places,
        [query, key, value]: [Heads; 3],
        shape: &Shape,
        [batch, head]: [usize; 2],
        first: usize,
    ) -> Self {
        let (width, wide) = (shape.head_width, shape.value_width);
        let number = batch * shape.heads + head + 1;
        let is_there = number < shape.batch * shape.heads;
        if !is_there || shape.keys * (width + wide) > FEW_NUMBERS {
            return Self {
                context,
                next: [None, None, None],
            };
        }
        let [next_batch, next_head] = [number / shape.heads, number % shape.heads];
        let shared = shape.key_value_head(next_head);
        // Heads that share keys and values have just read them.
        let is_new = [next_batch, shared] != [batch, shape.key_value_head(head)];
        let places = |heads: Heads, head: usize, width: usize| {
            let at = [next_batch, head, first];
            Places::new(heads.data.as_ptr(), heads.strides, at, width)
        };
        Self {
            context,
            next: [
                Some(places(query, next_head, width)),
                is_new.then(|| places(key, shared, width)),
                is_new.then(|| places(value, shared, wide)),
            ],
        }
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

/// Where rows stand, or beyond the last of them: nothing is read there.
pub(super) struct Places {
    start: *const f32,
    stride: usize,
    width: usize,
}

impl Places {
    /// Of the rows of a head from one on.
    #[inline(always)]
    pub fn new(
        data: *const f32,
        strides: Strides,
        [batch, head, row]: [usize; 3],
        width: usize,
    ) -> Self {
        let of_rows = Self {
            start: data.wrapping_add(batch * strides.batch + head * strides.head),
            stride: strides.row,
            width,
        };
        Self {
            start: of_rows.at(row),
            ..of_rows
        }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> *const f32 {
        self.start.wrapping_add(row.wrapping_mul(self.stride))
    }
}
