//! The backward pass. Let `o = n / d` be a query's context and `g` its gradient; the gradients of the numerator `n` and the
//! denominator `d` are `h = g / d` and `c = -h·o`. Then
//!
//! ```text
//! dφq = Σ (h·v + c) φk     over the keys visible to the query: forwards, with the state of keys and values
//! dφk = Σ (h·v + c) φq     over the queries that see the key: backwards, with the state of queries and gradients
//! dv  = Σ (φq·φk) h
//! ```
//!
//! Extended rows `[v, 1]` and `[h, c]` turn each sum into one product.

mod buffers;
mod key_value;

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use self::buffers::{BufferSizes, Buffers, buffer_sizes};
use super::tiles::{
    Accumulator, Lhs, Panels, Triangle, contiguous, multiply, pack, pack_lhs, pack_transposed,
    write_rows,
};
use super::{
    Chunk, ChunkSchedule, HeadRows, Heads, KEY_BLOCK, Options, OutputHeads, Shape, check_length,
};
use crate::elementwise::scale_into;
use crate::gemm::with_scratch;
use crate::linear::dot;
use crate::microkernel::{self, Init, TileSize};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Where the gradients are written, `[batch, length, heads, width]` each: overwritten, not accumulated.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// The gradient of the queries' features.
    pub query: &'a mut [f32],
    /// The gradient of the keys' features.
    pub key: &'a mut [f32],
    /// The gradient of the values.
    pub value: &'a mut [f32],
}

/// The backward pass of linear attention, from the results of [`super::forward`] and the gradients of the context. The
/// initial state gets no gradient.
///
/// # Panics
/// When a slice does not match the shape.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    [context, context_gradients]: [Heads; 2],
    denominators: &[f32],
    options: &Options,
    gradients: Gradients,
) {
    options.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    check_length("denominators", denominators.len(), rows);
    let out = GradientTargets::new(shape, gradients);
    let instructions = simd::instructions();
    let buffer_sizes = buffer_sizes(shape, TileSize::of(instructions));
    let task = |index: usize| {
        let batch = index / shape.key_value_heads;
        let key_value_head = index % shape.key_value_heads;
        // Scratch is borrowed outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, buffer_sizes.iter().sum(), |scratch| {
            let kernel = LinearBackwardTask {
                shape,
                query,
                key: HeadRows::new(key, batch, key_value_head, shape.head_width),
                value: HeadRows::new(value, batch, key_value_head, shape.value_width),
                context,
                context_gradients,
                denominators,
                options,
                schedule: options.chunk_schedule(shape, batch),
                batch,
                key_value_head,
                out,
                scratch,
                buffer_sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let groups = shape.batch * shape.key_value_heads;
    let work = (rows + groups * shape.keys) * shape.head_width * shape.value_width;
    if work < 1 << 16 {
        (0..groups).for_each(task);
    } else {
        threads::parallel_for(groups, task);
    }
}

/// Gradient buffers. Each task writes its own heads.
#[derive(Clone, Copy)]
struct GradientTargets {
    query: OutputHeads,
    key: OutputHeads,
    value: OutputHeads,
}

impl GradientTargets {
    /// Panics when a slice does not match the shape.
    fn new(shape: &Shape, gradients: Gradients) -> Self {
        let Shape {
            batch,
            heads,
            key_value_heads,
            queries,
            keys,
            head_width,
            value_width,
        } = *shape;
        let query = [batch, queries, heads, head_width];
        let key_value = |width: usize| [batch, keys, key_value_heads, width];
        Self {
            query: OutputHeads::new("query", gradients.query, query),
            key: OutputHeads::new("key", gradients.key, key_value(head_width)),
            value: OutputHeads::new("value", gradients.value, key_value(value_width)),
        }
    }
}

/// One key-value head and the query heads that share it.
struct LinearBackwardTask<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: HeadRows<'a>,
    value: HeadRows<'a>,
    context: Heads<'a>,
    context_gradients: Heads<'a>,
    denominators: &'a [f32],
    options: &'a Options<'a>,
    schedule: ChunkSchedule,
    batch: usize,
    key_value_head: usize,
    out: GradientTargets,
    scratch: &'a mut [f32],
    buffer_sizes: BufferSizes,
}

impl WithSimd for LinearBackwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let scratch = std::mem::take(&mut self.scratch);
        let mut buffers = Buffers::split(scratch, self.buffer_sizes);
        self.query_gradients(simd, &mut buffers);
        self.key_value_gradients(simd, &mut buffers);
    }
}

impl LinearBackwardTask<'_> {
    fn heads(&self) -> Range<usize> {
        let group = self.shape.heads / self.shape.key_value_heads;
        self.key_value_head * group..(self.key_value_head + 1) * group
    }

    /// The gradients of the queries.
    #[inline(always)]
    fn query_gradients<S: Simd>(&self, simd: S, buffers: &mut Buffers) {
        self.load_state::<S>(buffers.state);
        let prefix = self.schedule.prefix();
        let mut first = prefix.start;
        while first < prefix.end {
            let keys = first..prefix.end.min(first + KEY_BLOCK);
            first = keys.end;
            self.append_ones(keys.clone(), buffers.values);
            self.add_keys(simd, keys, buffers);
        }
        for index in 0..self.schedule.chunk_count() {
            let chunk = self.schedule.chunk(index);
            self.process_query_chunk(simd, &chunk, buffers);
        }
    }

    /// Packs the initial state, transposed, in panels of features.
    #[inline(always)]
    fn load_state<S: Simd>(&self, state: &mut [f32]) {
        state.fill(0.0);
        let Some(initial) = self.options.initial_state else {
            return;
        };
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let (panel, extended_width) = (microkernel::nr::<S>(), width + 1);
        let index = self.batch * self.shape.key_value_heads + self.key_value_head;
        for feature in 0..features {
            let at = index * features + feature;
            let offset = feature / panel * extended_width * panel + feature % panel;
            let sums = &initial.kv_sums[at * width..(at + 1) * width];
            for (column, sum) in sums.iter().chain([&initial.key_sums[at]]).enumerate() {
                state[offset + column * panel] = *sum;
            }
        }
    }

    /// The extended rows `[v, 1]` of a range of keys.
    #[inline(always)]
    fn append_ones(&self, keys: Range<usize>, out: &mut [f32]) {
        let width = self.shape.value_width;
        for (out, key) in out.chunks_exact_mut(width + 1).zip(keys) {
            out[..width].copy_from_slice(self.value.row(key));
            out[width] = 1.0;
        }
    }

    /// The extended rows `[h, c]` of a range of queries.
    #[inline(always)]
    fn extended_gradients<S: Simd>(
        &self,
        simd: S,
        head: usize,
        queries: Range<usize>,
        out: &mut [f32],
    ) {
        let width = self.shape.value_width;
        let context = HeadRows::new(self.context, self.batch, head, width);
        let context_gradients = HeadRows::new(self.context_gradients, self.batch, head, width);
        let first = (self.batch * self.shape.heads + head) * self.shape.queries;
        for (out, query) in out.chunks_exact_mut(width + 1).zip(queries) {
            let denominator = self.denominators[first + query];
            // Where the denominator is zero, the context is a constant zero: no gradient flows back.
            let inverse = super::inverse(denominator);
            let (dnumerator, ddenominator) = out.split_at_mut(width);
            scale_into(simd, context_gradients.row(query), inverse, dnumerator);
            ddenominator[0] = -dot(simd, dnumerator, context.row(query));
        }
    }

    /// Adds a range of keys, whose extended rows are in `values`, to the state of keys and values.
    #[inline(always)]
    fn add_keys<S: Simd>(&self, simd: S, keys: Range<usize>, buffers: &mut Buffers) {
        let view = self.key.view(keys.clone());
        // SAFETY: the view checks that all rows lie in their slice.
        let features = unsafe {
            pack(
                simd,
                view,
                keys.len(),
                self.shape.head_width,
                buffers.features,
            )
        };
        self.update_state(simd, buffers.values, features, buffers.lhs, buffers.state);
    }

    /// Adds the product of extended rows and features to a state.
    #[inline(always)]
    fn update_state<S: Simd>(
        &self,
        simd: S,
        extended_rows: &[f32],
        features: Panels,
        lhs: &mut [f32],
        state: &mut [f32],
    ) {
        let extended_width = self.shape.value_width + 1;
        let rows = features.depth;
        assert!(extended_rows.len() >= rows * extended_width);
        // SAFETY: the number of extended rows was checked above, and the left-hand side is packed from them.
        unsafe {
            let lhs = pack_lhs(
                simd,
                contiguous(extended_rows, extended_width),
                rows,
                extended_width,
                lhs,
            );
            let mut sums = Accumulator::panels::<S>(state, extended_width);
            let size = [extended_width, self.shape.head_width];
            multiply(simd, size, lhs, features, &mut sums, Init::Accumulate);
        }
    }

    /// Writes the gradients of a chunk's queries, then adds its keys to the state.
    #[inline(always)]
    fn process_query_chunk<S: Simd>(&self, simd: S, chunk: &Chunk, buffers: &mut Buffers) {
        let features = self.shape.head_width;
        let extended_width = self.shape.value_width + 1;
        let (queries, keys) = (chunk.queries.clone(), chunk.keys.clone());
        self.append_ones(keys.clone(), buffers.values);
        let view = self.key.view(keys.clone());
        // SAFETY: the view checks that all rows lie in their slice.
        let key_panels = unsafe { pack(simd, view, keys.len(), features, buffers.features) };
        let value_columns =
            self.pack_values(simd, keys.len(), buffers.values, buffers.value_columns);
        let triangle = Triangle::of(chunk);
        for head in self.heads() {
            self.extended_gradients(simd, head, queries.clone(), buffers.output_gradients);
            let lhs = Lhs::rows(contiguous(buffers.output_gradients, extended_width));
            let state = Panels {
                data: buffers.state,
                depth: extended_width,
            };
            let mut rows = Accumulator::rows::<S>(buffers.feature_rows, features);
            // SAFETY: these extended rows were just written.
            unsafe {
                let size = [queries.len(), features];
                multiply(simd, size, lhs, state, &mut rows, Init::Zero);
                if !keys.is_empty() {
                    let weight_gradients = &mut *buffers.triangles;
                    triangle.scores(simd, lhs, value_columns, weight_gradients);
                    triangle.accumulate(simd, weight_gradients, key_panels, features, &mut rows);
                }
                write_rows(self.out.query, self.batch, head, queries.clone(), &rows);
            }
        }
        if !keys.is_empty() {
            self.update_state(simd, buffers.values, key_panels, buffers.lhs, buffers.state);
        }
    }

    /// Packs the extended rows of `keys` keys, transposed, in panels.
    #[inline(always)]
    fn pack_values<'b, S: Simd>(
        &self,
        simd: S,
        keys: usize,
        extended_rows: &[f32],
        out: &'b mut [f32],
    ) -> Panels<'b> {
        let extended_width = self.shape.value_width + 1;
        let view = contiguous(&extended_rows[..keys * extended_width], extended_width);
        // SAFETY: the slice has all rows.
        unsafe { pack_transposed(simd, view, keys, extended_width, out) }
    }
}
