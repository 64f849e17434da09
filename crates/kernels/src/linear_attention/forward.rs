//! The forward pass: chunk by chunk, updating the state in between.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::tiles::{
    Accumulator, Lhs, Panels, Triangle, add_rows, multiply, pack, pack_lhs, pack_transposed, sum,
};
use super::{
    CHUNK, Chunk, ChunkSchedule, HeadRows, Heads, KEY_BLOCK, Options, OutputHeads, Shape,
    check_length, state_size,
};
use crate::elementwise::scale_into;
use crate::gemm::{split_scratch, with_scratch};
use crate::linear::dot;
use crate::microkernel::{self, Init, TileSize};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Where the results are written: every element is overwritten.
#[derive(Debug)]
pub struct ForwardOutputs<'a> {
    /// `[batch, queries, heads, value_width]`
    pub context: &'a mut [f32],
    /// `Σ φq·φk` of each row, `[batch, heads, queries]`, saved for the backward pass.
    pub denominators: &'a mut [f32],
    /// The state after all keys, `[batch, key_value_heads, features, value_width]`.
    pub kv_sums: &'a mut [f32],
    /// `[batch, key_value_heads, features]`
    pub key_sums: &'a mut [f32],
}

/// Linear attention of feature rows; `head_width` of the shape is the number of features.
///
/// # Panics
/// When a slice does not match the shape.
pub fn forward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    options: &Options,
    outputs: ForwardOutputs,
) {
    options.check(shape);
    let out = OutputTargets::new(shape, outputs);
    let instructions = simd::instructions();
    let buffer_sizes = buffer_sizes(shape, TileSize::of(instructions));
    let groups = shape.batch * shape.key_value_heads;
    let group = shape.heads / shape.key_value_heads;
    // With fewer groups than threads, the query heads of a group are split too; each task then recomputes the state.
    let tasks_per_group = threads::count().div_ceil(groups.max(1)).min(group).max(1);
    let heads_per_task = group.div_ceil(tasks_per_group).max(1);
    let tasks_per_group = group.div_ceil(heads_per_task).max(1);
    let task = |index: usize| {
        let (key_value_head, part) = (index / tasks_per_group, index % tasks_per_group);
        let (batch, key_value_head) = (
            key_value_head / shape.key_value_heads,
            key_value_head % shape.key_value_heads,
        );
        let last = group.min((part + 1) * heads_per_task);
        // Scratch is borrowed outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, buffer_sizes.iter().sum(), |scratch| {
            let kernel = LinearForwardTask {
                shape,
                query,
                key: HeadRows::new(key, batch, key_value_head, shape.head_width),
                value: HeadRows::new(value, batch, key_value_head, shape.value_width),
                options,
                schedule: options.chunk_schedule(shape, batch),
                batch,
                key_value_head,
                heads: key_value_head * group + part * heads_per_task
                    ..key_value_head * group + last,
                writes_state: part == 0,
                out,
                scratch,
                buffer_sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let rows = shape.batch * shape.heads * shape.queries;
    let work = (rows + groups * shape.keys) * shape.head_width * shape.value_width;
    if work < 1 << 16 {
        (0..groups * tasks_per_group).for_each(task);
    } else {
        threads::parallel_for(groups * tasks_per_group, task);
    }
}

/// Output buffers. Each task writes its own rows; the first of a group writes its state.
#[derive(Clone, Copy)]
struct OutputTargets {
    context: OutputHeads,
    denominators: *mut f32,
    kv_sums: *mut f32,
    key_sums: *mut f32,
}

// SAFETY: each task writes only to the rows of its own heads, and one of each group to its state.
unsafe impl Send for OutputTargets {}
// SAFETY: as above; the pointers themselves are only read.
unsafe impl Sync for OutputTargets {}

impl OutputTargets {
    /// Panics when a slice does not match the shape.
    fn new(shape: &Shape, outputs: ForwardOutputs) -> Self {
        let rows = shape.batch * shape.heads * shape.queries;
        check_length("denominators", outputs.denominators.len(), rows);
        check_length("kv_sums", outputs.kv_sums.len(), state_size(shape));
        let key_sums = state_size(shape) / shape.value_width;
        check_length("key_sums", outputs.key_sums.len(), key_sums);
        let context = [shape.batch, shape.queries, shape.heads, shape.value_width];
        Self {
            context: OutputHeads::new("context", outputs.context, context),
            denominators: outputs.denominators.as_mut_ptr(),
            kv_sums: outputs.kv_sums.as_mut_ptr(),
            key_sums: outputs.key_sums.as_mut_ptr(),
        }
    }
}

/// Lengths of the buffers, in the order of [`Buffers`].
fn buffer_sizes(shape: &Shape, tile: TileSize) -> [usize; 7] {
    let panel = tile.nr;
    let padded_value_width = shape.value_width.next_multiple_of(panel);
    [
        shape.head_width * padded_value_width,
        shape.head_width,
        CHUNK.next_multiple_of(panel) * shape.head_width,
        KEY_BLOCK * shape.head_width.next_multiple_of(microkernel::MR),
        KEY_BLOCK * padded_value_width,
        CHUNK * CHUNK.next_multiple_of(panel),
        CHUNK * padded_value_width,
    ]
}

struct Buffers<'s> {
    /// The state: `Σ φk vᵀ` in panels of value columns, and `Σ φk`.
    state: &'s mut [f32],
    key_sums: &'s mut [f32],
    /// A chunk's keys, transposed, in panels.
    keys: &'s mut [f32],
    /// Packed keys and values that update the state.
    lhs: &'s mut [f32],
    values: &'s mut [f32],
    /// The causal triangle of scores, and a chunk's rows of context.
    scores: &'s mut [f32],
    rows: &'s mut [f32],
}

/// One key-value head, and some of the query heads that share it.
struct LinearForwardTask<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: HeadRows<'a>,
    value: HeadRows<'a>,
    options: &'a Options<'a>,
    schedule: ChunkSchedule,
    batch: usize,
    key_value_head: usize,
    heads: Range<usize>,
    /// Whether this is the task that writes the state.
    writes_state: bool,
    out: OutputTargets,
    scratch: &'a mut [f32],
    buffer_sizes: [usize; 7],
}

impl WithSimd for LinearForwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let [state, key_sums, keys, lhs, values, scores, rows] =
            split_scratch(std::mem::take(&mut self.scratch), self.buffer_sizes);
        let mut buffers = Buffers {
            state,
            key_sums,
            keys,
            lhs,
            values,
            scores,
            rows,
        };
        self.load_state::<S>(simd, &mut buffers);
        let prefix = self.schedule.prefix();
        let mut first = prefix.start;
        while first < prefix.end {
            let keys = first..prefix.end.min(first + KEY_BLOCK);
            first = keys.end;
            self.add_keys(simd, keys, &mut buffers);
        }
        for index in 0..self.schedule.chunk_count() {
            let chunk = self.schedule.chunk(index);
            self.process_chunk(simd, &chunk, &mut buffers);
        }
        if self.writes_state {
            self.store_state::<S>(&buffers);
        }
    }
}

impl LinearForwardTask<'_> {
    /// Packs the initial state.
    #[inline(always)]
    fn load_state<S: Simd>(&self, simd: S, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let Some(initial) = self.options.initial_state else {
            buffers.state.fill(0.0);
            buffers.key_sums.fill(0.0);
            return;
        };
        let index = self.batch * self.shape.key_value_heads + self.key_value_head;
        let kv_sums = &initial.kv_sums[index * features * width..(index + 1) * features * width];
        let view = super::tiles::contiguous(kv_sums, width);
        // SAFETY: the view covers all of `kv_sums`.
        unsafe { pack(simd, view, features, width, buffers.state) };
        let key_sums = &initial.key_sums[index * features..(index + 1) * features];
        buffers.key_sums.copy_from_slice(key_sums);
    }

    /// Writes the state after all keys.
    #[inline(always)]
    fn store_state<S: Simd>(&self, buffers: &Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let panel = microkernel::nr::<S>();
        let index = self.batch * self.shape.key_value_heads + self.key_value_head;
        // SAFETY: `forward` checked the sizes, and this is the only task that writes this group's state.
        let (kv_sums, key_sums) = unsafe {
            let kv_sums = self.out.kv_sums.add(index * features * width);
            let key_sums = self.out.key_sums.add(index * features);
            (
                std::slice::from_raw_parts_mut(kv_sums, features * width),
                std::slice::from_raw_parts_mut(key_sums, features),
            )
        };
        key_sums.copy_from_slice(buffers.key_sums);
        for (feature, row) in kv_sums.chunks_exact_mut(width).enumerate() {
            for (index, part) in row.chunks_mut(panel).enumerate() {
                let from = (index * features + feature) * panel;
                part.copy_from_slice(&buffers.state[from..from + part.len()]);
            }
        }
    }

    /// Adds a range of keys to the state.
    #[inline(always)]
    fn add_keys<S: Simd>(&self, simd: S, keys: Range<usize>, buffers: &mut Buffers) {
        // SAFETY: the view checks that all rows lie in their slice.
        let values = unsafe {
            let view = self.value.view(keys.clone());
            pack(
                simd,
                view,
                keys.len(),
                self.shape.value_width,
                buffers.values,
            )
        };
        self.update_state(
            simd,
            keys,
            values,
            buffers.lhs,
            buffers.state,
            buffers.key_sums,
        );
    }

    /// Adds a range of keys, whose values are packed, to the state.
    #[inline(always)]
    fn update_state<S: Simd>(
        &self,
        simd: S,
        keys: Range<usize>,
        values: Panels,
        lhs: &mut [f32],
        state: &mut [f32],
        key_sums: &mut [f32],
    ) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        // SAFETY: the view checks that all rows lie in their slice, and the left-hand side is packed from them.
        unsafe {
            let view = self.key.view(keys.clone());
            let lhs = pack_lhs(simd, view, keys.len(), features, lhs);
            let mut kv_sums = Accumulator::panels::<S>(state, features);
            multiply(
                simd,
                [features, width],
                lhs,
                values,
                &mut kv_sums,
                Init::Accumulate,
            );
        }
        add_rows(simd, self.key, keys, key_sums);
    }

    /// Computes the context of a chunk's queries, then adds its keys to the state.
    #[inline(always)]
    fn process_chunk<S: Simd>(&self, simd: S, chunk: &Chunk, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let (queries, keys) = (chunk.queries.clone(), chunk.keys.clone());
        // SAFETY: the views check that all rows lie in their slices.
        let (columns, values) = unsafe {
            let view = self.key.view(keys.clone());
            let columns = pack_transposed(simd, view, keys.len(), features, buffers.keys);
            let view = self.value.view(keys.clone());
            (columns, pack(simd, view, keys.len(), width, buffers.values))
        };
        let (triangle, stride) = (Triangle::of(chunk), Triangle::stride::<S>());
        for head in self.heads.clone() {
            let query = HeadRows::new(self.query, self.batch, head, features);
            let lhs = Lhs::rows(query.view(queries.clone()));
            let state = Panels {
                data: buffers.state,
                depth: features,
            };
            let mut rows = Accumulator::rows::<S>(buffers.rows, width);
            // SAFETY: the left-hand side has all the chunk's rows of features.
            unsafe {
                let size = [queries.len(), width];
                multiply(simd, size, lhs, state, &mut rows, Init::Zero);
                if !keys.is_empty() {
                    triangle.scores(simd, lhs, columns, buffers.scores);
                    triangle.accumulate(simd, buffers.scores, values, width, &mut rows);
                }
            }
            let padded_width = rows.stride;
            for row in 0..queries.len() {
                let scores =
                    &buffers.scores[row * stride..row * stride + triangle.visible_keys(row)];
                let query_index = queries.start + row;
                let denominator =
                    dot(simd, query.row(query_index), buffers.key_sums) + sum(simd, scores);
                let sums = &buffers.rows[row * padded_width..row * padded_width + width];
                self.write_context(simd, head, query_index, sums, denominator);
            }
        }
        if !keys.is_empty() {
            self.update_state(
                simd,
                keys,
                values,
                buffers.lhs,
                buffers.state,
                buffers.key_sums,
            );
        }
    }

    /// Normalizes and writes a row of context.
    #[inline(always)]
    fn write_context<S: Simd>(
        &self,
        simd: S,
        head: usize,
        row: usize,
        sums: &[f32],
        denominator: f32,
    ) {
        let index = (self.batch * self.shape.heads + head) * self.shape.queries + row;
        // SAFETY: `forward` checked the sizes, and no other task has this head.
        let context = unsafe {
            *self.out.denominators.add(index) = denominator;
            self.out.context.row(self.batch, head, row)
        };
        let inverse = super::inverse(denominator);
        scale_into(simd, sums, inverse, context);
    }
}
