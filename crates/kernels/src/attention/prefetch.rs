//! Prefetches the rows that come after a block of queries. A head's rows are short and strided, which hardware prefetchers miss:
//! heads of a hundred positions stalled on them for a tenth of their time.

use super::{Heads, Shape, Strides};
use crate::simd;

/// The rows needed after a block of queries.
pub(super) struct Prefetch {
    /// The context rows of this block, written at its end.
    context: RowPointers,
    /// The next head's queries, keys and values: as many positions as the block has queries, which is only a part of them where
    /// there are more keys.
    next_head: [Option<RowPointers>; 3],
}

/// Keys and values of a head, in f32s, that stay in L2 until they are read.
const L2_MAX_KEY_VALUES: usize = 1 << 15;

impl Prefetch {
    /// For the block of queries of a head that begins at `first`, whose results go to `context`.
    #[inline(always)]
    pub fn new(
        context: RowPointers,
        [query, key, value]: [Heads; 3],
        shape: &Shape,
        [batch, head]: [usize; 2],
        first: usize,
    ) -> Self {
        let (head_width, value_width) = (shape.head_width, shape.value_width);
        let next = batch * shape.heads + head + 1;
        let exists = next < shape.batch * shape.heads;
        if !exists || shape.keys * (head_width + value_width) > L2_MAX_KEY_VALUES {
            return Self {
                context,
                next_head: [None, None, None],
            };
        }
        let [next_batch, next_head] = [next / shape.heads, next % shape.heads];
        let key_value_head = shape.key_value_head(next_head);
        // Query heads that share a key-value head have just read it.
        let is_new = [next_batch, key_value_head] != [batch, shape.key_value_head(head)];
        let rows = |heads: Heads, head: usize, width: usize| {
            let at = [next_batch, head, first];
            RowPointers::new(heads.data.as_ptr(), heads.strides, at, width)
        };
        Self {
            context,
            next_head: [
                Some(rows(query, next_head, head_width)),
                is_new.then(|| rows(key, key_value_head, head_width)),
                is_new.then(|| rows(value, key_value_head, value_width)),
            ],
        }
    }

    /// Prefetches the rows that belong to one query of the block.
    #[inline(always)]
    pub fn row(&self, row: usize) {
        simd::prefetch_l1(self.context.at(row), self.context.width);
        for rows in self.next_head.iter().flatten() {
            simd::prefetch_l2(rows.at(row), rows.width);
        }
    }
}

/// Addresses of strided rows. They may lie beyond the last row: they are only prefetched, never read.
pub(super) struct RowPointers {
    start: *const f32,
    stride: usize,
    width: usize,
}

impl RowPointers {
    /// The rows of a head from `row` on.
    #[inline(always)]
    pub fn new(
        data: *const f32,
        strides: Strides,
        [batch, head, row]: [usize; 3],
        width: usize,
    ) -> Self {
        let rows = Self {
            start: data.wrapping_add(batch * strides.batch + head * strides.head),
            stride: strides.row,
            width,
        };
        Self {
            start: rows.at(row),
            ..rows
        }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> *const f32 {
        self.start.wrapping_add(row.wrapping_mul(self.stride))
    }
}
