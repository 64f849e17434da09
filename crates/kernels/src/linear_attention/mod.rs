//! Attention without a softmax, linear in the length: weights are products of features. Katharopoulos et al. 2020.
//!
//! Queries and keys come as rows of features φ. The context of a query is `Σ φq·φk v / Σ φq·φk` over the keys that it sees,
//! and zeros where the sum below is zero. Sums over keys are a state of constant size, `S = Σ φk vᵀ` and `z = Σ φk`.
//!
//! ```text
//!  keys      before   │ chunk │           Keys that all queries of a chunk see are in the state; within the chunk, a
//!          ┌──────────┼───────┤           small triangle of products decides. Then the chunk's keys join the state.
//!  queries │ φq · S   │ ▙     │           Without a causal order, all keys come before.
//!          └──────────┴───────┘
//! ```
//!
//! The backward pass goes over the chunks once forwards, with the same state, for the queries, and once backwards, with the
//! state of queries and slopes, for keys and values.

mod backward;
mod forward;
pub mod naive;
#[cfg(test)]
mod tests;
mod tiles;

pub use crate::attention::{Heads, Shape, Strides};
pub use backward::{Gradients, backward};
pub use forward::{Attended, forward};

use std::ops::Range;

use crate::micro::View;

/// Queries per chunk, a multiple of the tile's rows.
const CHUNK: usize = 48;
/// Keys that join a state at a time where no triangle is needed: more of them load and store the state less often.
const MANY: usize = 4 * CHUNK;

/// Which keys a query sees. Queries are the last of the keys' positions; where there are more queries than keys, the first
/// stand before key 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All of them.
    Any,
    /// No key after the query's position.
    Causal,
}

/// All that decides a linear attention besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Which keys a query sees.
    pub order: Order,
    /// Per sequence, the keys that are not padding.
    pub keys: Option<&'a [Range<usize>]>,
    /// Sums over keys that come before all others.
    pub start: Option<State<'a>>,
}

/// Sums over keys: all that later queries need to know of them.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// `Σ φk vᵀ`, `[batch, key_value_heads, features, value_width]`
    pub sums: &'a [f32],
    /// `Σ φk`, `[batch, key_value_heads, features]`
    pub totals: &'a [f32],
}

impl Options<'_> {
    /// Panics where the operands do not fit each other.
    fn check(&self, shape: &Shape) {
        assert!(
            shape.key_value_heads > 0 && shape.heads.is_multiple_of(shape.key_value_heads),
            "linear_attention: {} key-value heads do not divide {} heads",
            shape.key_value_heads,
            shape.heads
        );
        assert!(
            shape.head_width > 0 && shape.value_width > 0,
            "linear_attention: {shape:?} has heads of no width"
        );
        let ranges = self.keys.map_or(shape.batch, <[_]>::len);
        assert_eq!(
            ranges, shape.batch,
            "linear_attention: {ranges} ranges of keys for a batch of {}",
            shape.batch
        );
        if let Some(start) = self.start {
            fits("sums", start.sums.len(), state_size(shape));
            let totals = state_size(shape) / shape.value_width;
            fits("totals", start.totals.len(), totals);
        }
    }

    /// The pass over the keys of one sequence.
    fn plan(&self, shape: &Shape, batch: usize) -> Plan {
        let real = self.keys.map_or(0..shape.keys, |keys| {
            let end = keys[batch].end.min(shape.keys);
            keys[batch].start.min(end)..end
        });
        Plan {
            order: self.order,
            queries: shape.queries,
            keys: shape.keys,
            real,
        }
    }
}

fn fits(name: &str, found: usize, expected: usize) {
    crate::parts::fits("linear_attention", name, found, expected);
}

/// The numbers of all states' sums.
fn state_size(shape: &Shape) -> usize {
    shape.batch * shape.key_value_heads * shape.head_width * shape.value_width
}

/// Which keys join the state before which queries ask.
#[derive(Clone, Debug)]
struct Plan {
    order: Order,
    queries: usize,
    keys: usize,
    /// The keys that are not padding.
    real: Range<usize>,
}

/// Some queries, and the keys at their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    queries: Range<usize>,
    keys: Range<usize>,
    /// How many queries stand before the first of the keys: query `i` sees the first `i + 1 - shift`.
    shift: usize,
}

impl Plan {
    /// The keys that every query sees.
    fn before(&self) -> Range<usize> {
        let end = match self.order {
            Order::Any => self.keys,
            Order::Causal => self.keys.saturating_sub(self.queries),
        };
        self.within(0..end)
    }

    fn chunks(&self) -> usize {
        self.queries.div_ceil(CHUNK)
    }

    fn chunk(&self, index: usize) -> Chunk {
        let first = index * CHUNK;
        let queries = first..self.queries.min(first + CHUNK);
        if self.order == Order::Any {
            return Chunk {
                queries,
                keys: 0..0,
                shift: 0,
            };
        }
        // A query's position is `query + keys - queries`, which may be below zero: the subtraction comes last.
        let place = |query: usize| (query + self.keys).saturating_sub(self.queries);
        let keys = self.within(place(queries.start)..place(queries.end));
        let shift = (keys.start + self.queries).saturating_sub(queries.start + self.keys);
        Chunk {
            queries,
            keys,
            shift,
        }
    }

    fn within(&self, keys: Range<usize>) -> Range<usize> {
        let end = keys.end.min(self.real.end);
        keys.start.max(self.real.start).min(end)..end
    }
}

/// The rows of one head of one sequence.
#[derive(Clone, Copy, Debug)]
struct Rows<'a> {
    data: &'a [f32],
    stride: usize,
    width: usize,
}

impl<'a> Rows<'a> {
    fn new(heads: Heads<'a>, batch: usize, head: usize, width: usize) -> Self {
        let Strides {
            batch: by_batch,
            head: by_head,
            row,
        } = heads.strides;
        let start = (batch * by_batch + head * by_head).min(heads.data.len());
        Self {
            data: &heads.data[start..],
            stride: row,
            width,
        }
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..row * self.stride + self.width]
    }

    /// Some of the rows, which are checked to lie in the slice.
    #[inline(always)]
    fn view(&self, rows: Range<usize>) -> View {
        if rows.is_empty() {
            return View {
                start: self.data.as_ptr(),
                row_stride: self.stride,
                column_stride: 1,
            };
        }
        self.row(rows.end - 1);
        View {
            start: self.row(rows.start).as_ptr(),
            row_stride: self.stride,
            column_stride: 1,
        }
    }
}

/// Where a kernel's tasks write: rows `[batch, length, heads, width]` without gaps, each task to heads of its own.
#[derive(Clone, Copy, Debug)]
struct Target {
    start: *mut f32,
    length: usize,
    heads: usize,
    width: usize,
}

// SAFETY: each task writes only to heads of its own.
unsafe impl Send for Target {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for Target {}

impl Target {
    fn new(name: &str, data: &mut [f32], [batch, length, heads, width]: [usize; 4]) -> Self {
        fits(name, data.len(), batch * length * heads * width);
        Self {
            start: data.as_mut_ptr(),
            length,
            heads,
            width,
        }
    }

    /// # Safety
    /// The row must exist, and nobody else may use it.
    #[inline(always)]
    unsafe fn row<'a>(self, batch: usize, head: usize, row: usize) -> &'a mut [f32] {
        let at = ((batch * self.length + row) * self.heads + head) * self.width;
        // SAFETY: the caller's promise; `new` checked that there are so many rows.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), self.width) }
    }
}

/// What sums are multiplied with. A sum of nothing gives zeros, and so does one whose inverse f32 does not hold.
#[inline(always)]
fn inverse(total: f32) -> f32 {
    if total.abs() < f32::MIN_POSITIVE {
        0.0
    } else {
        1.0 / total
    }
}
