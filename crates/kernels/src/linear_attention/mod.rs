//! Linear attention: attention without a softmax, whose weights are products of features. Katharopoulos et al. 2020.
//!
//! Queries and keys come as rows of features φ. The context of a query is `Σ φq·φk v / Σ φq·φk` over its visible keys, and zeros
//! where the denominator is zero. The sums over keys are a state of constant size, `S = Σ φk vᵀ` and `z = Σ φk`.
//!
//! ```text
//!  keys      before   │ chunk │           Keys visible to all queries of a chunk are in the state; within the chunk, a
//!          ┌──────────┼───────┤           small causal triangle of scores is added. Then its keys update the state.
//!  queries │ φq · S   │ ▙     │           Bidirectional: all keys come before.
//!          └──────────┴───────┘
//! ```
//!
//! The backward pass goes over the chunks once forwards, with the same state, for the gradients of the queries, and once
//! backwards, with a state of queries and output gradients, for those of keys and values.

mod backward;
mod forward;
pub mod naive;
#[cfg(test)]
mod tests;
mod tiles;

pub use crate::attention::{Heads, Shape, Strides};
pub use backward::{Gradients, backward};
pub use forward::{ForwardOutputs, forward};

use std::ops::Range;

use crate::microkernel::View;

/// Queries per chunk, a multiple of the microkernel's rows.
const CHUNK: usize = 48;
/// Keys per update of the state outside the causal triangle: larger blocks load and store the state less often.
const KEY_BLOCK: usize = 4 * CHUNK;

/// Which keys a query sees. The queries are at the last positions of the keys; where there are more queries than keys, the
/// first are before key 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All of them.
    Bidirectional,
    /// None after the query's position.
    Causal,
}

/// Arguments of linear attention besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Which keys a query sees.
    pub order: Order,
    /// The unpadded keys of each sequence.
    pub keys: Option<&'a [Range<usize>]>,
    /// The state of earlier keys.
    pub initial_state: Option<State<'a>>,
}

/// The recurrent state: all that later queries need of earlier keys.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// `Σ φk vᵀ`, `[batch, key_value_heads, features, value_width]`
    pub kv_sums: &'a [f32],
    /// `Σ φk`, `[batch, key_value_heads, features]`
    pub key_sums: &'a [f32],
}

impl Options<'_> {
    /// Panics where the operands do not match each other.
    fn check(&self, shape: &Shape) {
        assert!(
            shape.key_value_heads > 0 && shape.heads.is_multiple_of(shape.key_value_heads),
            "linear_attention: {} key-value heads do not divide {} heads",
            shape.key_value_heads,
            shape.heads
        );
        assert!(
            shape.head_width > 0 && shape.value_width > 0,
            "linear_attention: {shape:?} has heads of width zero"
        );
        let ranges = self.keys.map_or(shape.batch, <[_]>::len);
        assert_eq!(
            ranges, shape.batch,
            "linear_attention: {ranges} ranges of keys for a batch of {}",
            shape.batch
        );
        if let Some(state) = self.initial_state {
            check_length("kv_sums", state.kv_sums.len(), state_size(shape));
            let key_sums = state_size(shape) / shape.value_width;
            check_length("key_sums", state.key_sums.len(), key_sums);
        }
    }

    /// The chunks of one sequence.
    fn chunk_schedule(&self, shape: &Shape, batch: usize) -> ChunkSchedule {
        let unpadded = self.keys.map_or(0..shape.keys, |keys| {
            let end = keys[batch].end.min(shape.keys);
            keys[batch].start.min(end)..end
        });
        ChunkSchedule {
            order: self.order,
            queries: shape.queries,
            keys: shape.keys,
            unpadded,
        }
    }
}

fn check_length(name: &str, found: usize, expected: usize) {
    crate::partition::check_length("linear_attention", name, found, expected);
}

/// Elements of `kv_sums` of all states.
fn state_size(shape: &Shape) -> usize {
    shape.batch * shape.key_value_heads * shape.head_width * shape.value_width
}

/// Which keys update the state before which queries read it.
#[derive(Clone, Debug)]
struct ChunkSchedule {
    order: Order,
    queries: usize,
    keys: usize,
    /// The keys that are not padding.
    unpadded: Range<usize>,
}

/// A chunk of queries, and the keys at their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    queries: Range<usize>,
    keys: Range<usize>,
    /// The number of queries before the first key: query `i` sees the first `i + 1 - shift` keys.
    shift: usize,
}

impl ChunkSchedule {
    /// The keys visible to every query.
    fn prefix(&self) -> Range<usize> {
        let end = match self.order {
            Order::Bidirectional => self.keys,
            Order::Causal => self.keys.saturating_sub(self.queries),
        };
        self.unpadded_part(0..end)
    }

    fn chunk_count(&self) -> usize {
        self.queries.div_ceil(CHUNK)
    }

    fn chunk(&self, index: usize) -> Chunk {
        let first = index * CHUNK;
        let queries = first..self.queries.min(first + CHUNK);
        if self.order == Order::Bidirectional {
            return Chunk {
                queries,
                keys: 0..0,
                shift: 0,
            };
        }
        // A query's position is `query + keys - queries`, which may be negative: subtract last.
        let position = |query: usize| (query + self.keys).saturating_sub(self.queries);
        let keys = self.unpadded_part(position(queries.start)..position(queries.end));
        let shift = (keys.start + self.queries).saturating_sub(queries.start + self.keys);
        Chunk {
            queries,
            keys,
            shift,
        }
    }

    fn unpadded_part(&self, keys: Range<usize>) -> Range<usize> {
        let end = keys.end.min(self.unpadded.end);
        keys.start.max(self.unpadded.start).min(end)..end
    }
}

/// The rows of one head of one sequence.
#[derive(Clone, Copy, Debug)]
struct HeadRows<'a> {
    data: &'a [f32],
    stride: usize,
    width: usize,
}

impl<'a> HeadRows<'a> {
    fn new(heads: Heads<'a>, batch: usize, head: usize, width: usize) -> Self {
        let Strides {
            batch: batch_stride,
            head: head_stride,
            row,
        } = heads.strides;
        let start = (batch * batch_stride + head * head_stride).min(heads.data.len());
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

    /// A view of a range of rows, checked to lie in the slice.
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

/// Output rows, contiguous `[batch, length, heads, width]`; each task writes its own heads.
#[derive(Clone, Copy, Debug)]
struct OutputHeads {
    start: *mut f32,
    length: usize,
    heads: usize,
    width: usize,
}

// SAFETY: each task writes only to heads of its own.
unsafe impl Send for OutputHeads {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for OutputHeads {}

impl OutputHeads {
    fn new(name: &str, data: &mut [f32], [batch, length, heads, width]: [usize; 4]) -> Self {
        check_length(name, data.len(), batch * length * heads * width);
        Self {
            start: data.as_mut_ptr(),
            length,
            heads,
            width,
        }
    }

    /// # Safety
    /// The row must exist, and nothing else may access it.
    #[inline(always)]
    unsafe fn row<'a>(self, batch: usize, head: usize, row: usize) -> &'a mut [f32] {
        let at = ((batch * self.length + row) * self.heads + head) * self.width;
        // SAFETY: guaranteed by the caller; `new` checked the number of rows.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), self.width) }
    }
}

/// The factor that normalizes a sum: zero if the denominator is zero or subnormal, as its reciprocal could overflow.
#[inline(always)]
fn inverse(denominator: f32) -> f32 {
    if denominator.abs() < f32::MIN_POSITIVE {
        0.0
    } else {
        1.0 / denominator
    }
}
