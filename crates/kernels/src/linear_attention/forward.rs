//! The forward pass: chunk after chunk, with the state in between.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::tiles::{
    Left, Panels, Sums, Triangle, add_rows, multiply, pack, pack_left, pack_turned, sum,
};
use super::{CHUNK, Chunk, Heads, MANY, Options, Plan, Rows, Shape, Target, fits, state_size};
use crate::elementwise::scale_into;
use crate::gemm::with_scratch;
use crate::linear::dot;
use crate::micro::{self, Onto, TileSize};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Where results go; every number is written.
#[derive(Debug)]
pub struct Attended<'a> {
    /// `[batch, queries, heads, value_width]`
    pub context: &'a mut [f32],
    /// `Σ φq·φk` of each row, `[batch, heads, queries]`: what the backward pass needs.
    pub denominators: &'a mut [f32],
    /// The state after all keys, `[batch, key_value_heads, features, value_width]`.
    pub sums: &'a mut [f32],
    /// `[batch, key_value_heads, features]`
    pub totals: &'a mut [f32],
}

/// Linear attention of feature rows; `head_width` of the shape is the number of features.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn forward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    options: &Options,
    attended: Attended,
) {
    options.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    fits("denominators", attended.denominators.len(), rows);
    fits("sums", attended.sums.len(), state_size(shape));
    let totals = state_size(shape) / shape.value_width;
    fits("totals", attended.totals.len(), totals);
    let context = [shape.batch, shape.queries, shape.heads, shape.value_width];
    let out = Output {
        context: Target::new("context", attended.context, context),
        denominators: attended.denominators.as_mut_ptr(),
        sums: attended.sums.as_mut_ptr(),
        totals: attended.totals.as_mut_ptr(),
    };
    let instructions = simd::instructions();
    let sizes = sizes(shape, TileSize::of(instructions));
    let groups = shape.batch * shape.key_value_heads;
    let group = shape.heads / shape.key_value_heads;
    // With fewer groups than threads, the query heads of a group are shared out too; each task then makes the state again.
    let pieces = threads::count().div_ceil(groups.max(1)).min(group).max(1);
    let step = group.div_ceil(pieces).max(1);
    let pieces = group.div_ceil(step).max(1);
    let task = |index: usize| {
        let (shared, piece) = (index / pieces, index % pieces);
        let (batch, shared) = (
            shared / shape.key_value_heads,
            shared % shape.key_value_heads,
        );
        let last = group.min((piece + 1) * step);
        // The buffers are lent outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, sizes.iter().sum(), |scratch| {
            let kernel = Group {
                shape,
                query,
                key: Rows::new(key, batch, shared, shape.head_width),
                value: Rows::new(value, batch, shared, shape.value_width),
                options,
                plan: options.plan(shape, batch),
                batch,
                shared,
                heads: shared * group + piece * step..shared * group + last,
                is_first: piece == 0,
                out,
                scratch,
                sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let work = (rows + groups * shape.keys) * shape.head_width * shape.value_width;
    if work < 1 << 16 {
        (0..groups * pieces).for_each(task);
    } else {
        threads::each(groups * pieces, task);
    }
}

/// Where results go. Each task writes to rows of its own; the first of a group writes its state.
#[derive(Clone, Copy)]
struct Output {
    context: Target,
    denominators: *mut f32,
    sums: *mut f32,
    totals: *mut f32,
}

// SAFETY: each task writes only to the rows of its own heads, and one of each group to its state.
unsafe impl Send for Output {}
// SAFETY: as above; the pointers themselves are only read.
unsafe impl Sync for Output {}

/// The sizes of the buffers, in the order of [`Buffers`].
fn sizes(shape: &Shape, tile: TileSize) -> [usize; 7] {
    let panel = tile.columns;
    let wide = shape.value_width.next_multiple_of(panel);
    [
        shape.head_width * wide,
        shape.head_width,
        CHUNK.next_multiple_of(panel) * shape.head_width,
        MANY * shape.head_width.next_multiple_of(micro::ROWS),
        MANY * wide,
        CHUNK * CHUNK.next_multiple_of(panel),
        CHUNK * wide,
    ]
}

struct Buffers<'s> {
    /// The state: sums as panels of values' columns, and totals.
    state: &'s mut [f32],
    totals: &'s mut [f32],
    /// A chunk's keys as columns of panels.
    keys: &'s mut [f32],
    /// Keys and values on their way to the state.
    left: &'s mut [f32],
    values: &'s mut [f32],
    /// The triangle, and a chunk's rows of context.
    scores: &'s mut [f32],
    rows: &'s mut [f32],
}

/// One key-value head and some of the query heads that it serves.
struct Group<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Rows<'a>,
    value: Rows<'a>,
    options: &'a Options<'a>,
    plan: Plan,
    batch: usize,
    shared: usize,
    heads: Range<usize>,
    /// Whether this is the task that writes the state.
    is_first: bool,
    out: Output,
    scratch: &'a mut [f32],
    sizes: [usize; 7],
}

impl WithSimd for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut rest = std::mem::take(&mut self.scratch);
        let mut parts: [&mut [f32]; 7] = Default::default();
        for (part, size) in parts.iter_mut().zip(self.sizes) {
            (*part, rest) = rest.split_at_mut(size);
        }
        let [state, totals, keys, left, values, scores, rows] = parts;
        let mut buffers = Buffers {
            state,
            totals,
            keys,
            left,
            values,
            scores,
            rows,
        };
        self.begin::<S>(simd, &mut buffers);
        let before = self.plan.before();
        let mut first = before.start;
        while first < before.end {
            let many = first..before.end.min(first + MANY);
            first = many.end;
            self.absorb(simd, many, &mut buffers);
        }
        for index in 0..self.plan.chunks() {
            let chunk = self.plan.chunk(index);
            self.chunk(simd, &chunk, &mut buffers);
        }
        if self.is_first {
            self.end::<S>(&buffers);
        }
    }
}

impl Group<'_> {
    /// Packs the starting state.
    #[inline(always)]
    fn begin<S: Simd>(&self, simd: S, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let Some(start) = self.options.start else {
            buffers.state.fill(0.0);
            buffers.totals.fill(0.0);
            return;
        };
        let index = self.batch * self.shape.key_value_heads + self.shared;
        let sums = &start.sums[index * features * width..(index + 1) * features * width];
        let view = super::tiles::dense(sums, width);
        // SAFETY: the view is of all these sums.
        unsafe { pack(simd, view, features, width, buffers.state) };
        let totals = &start.totals[index * features..(index + 1) * features];
        buffers.totals.copy_from_slice(totals);
    }

    /// Writes the state after all keys.
    #[inline(always)]
    fn end<S: Simd>(&self, buffers: &Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let panel = micro::columns::<S>();
        let index = self.batch * self.shape.key_value_heads + self.shared;
        // SAFETY: `forward` checked the sizes, and this is the only task that writes this group's state.
        let (sums, totals) = unsafe {
            let sums = self.out.sums.add(index * features * width);
            let totals = self.out.totals.add(index * features);
            (
                std::slice::from_raw_parts_mut(sums, features * width),
                std::slice::from_raw_parts_mut(totals, features),
            )
        };
        totals.copy_from_slice(buffers.totals);
        for (feature, row) in sums.chunks_exact_mut(width).enumerate() {
            for (index, part) in row.chunks_mut(panel).enumerate() {
                let from = (index * features + feature) * panel;
                part.copy_from_slice(&buffers.state[from..from + part.len()]);
            }
        }
    }

    /// Adds some keys to the state.
    #[inline(always)]
    fn absorb<S: Simd>(&self, simd: S, keys: Range<usize>, buffers: &mut Buffers) {
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
        self.join(
            simd,
            keys,
            values,
            buffers.left,
            buffers.state,
            buffers.totals,
        );
    }

    /// Adds some keys, whose values are packed, to the state.
    #[inline(always)]
    fn join<S: Simd>(
        &self,
        simd: S,
        keys: Range<usize>,
        values: Panels,
        left: &mut [f32],
        state: &mut [f32],
        totals: &mut [f32],
    ) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        // SAFETY: the view checks that all rows lie in their slice, and the left-hand side is packed from them.
        unsafe {
            let view = self.key.view(keys.clone());
            let left = pack_left(simd, view, keys.len(), features, left);
            let mut sums = Sums::panels::<S>(state, features);
            multiply(simd, [features, width], left, values, &mut sums, Onto::Add);
        }
        add_rows(simd, self.key, keys, totals);
    }

    /// The context of a chunk's queries; then its keys join the state.
    #[inline(always)]
    fn chunk<S: Simd>(&self, simd: S, chunk: &Chunk, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let Chunk {
            queries,
            keys,
            shift,
        } = chunk.clone();
        // SAFETY: the views check that all rows lie in their slices.
        let (columns, values) = unsafe {
            let view = self.key.view(keys.clone());
            let columns = pack_turned(simd, view, keys.len(), features, buffers.keys);
            let view = self.value.view(keys.clone());
            (columns, pack(simd, view, keys.len(), width, buffers.values))
        };
        let triangle = Triangle {
            rows: queries.len(),
            keys: keys.len(),
            shift,
        };
        let stride = CHUNK.next_multiple_of(micro::columns::<S>());
        for head in self.heads.clone() {
            let query = Rows::new(self.query, self.batch, head, features);
            let left = Left::rows(query.view(queries.clone()));
            let state = Panels {
                data: buffers.state,
                depth: features,
            };
            let mut rows = Sums::rows::<S>(buffers.rows, width);
            // SAFETY: the left-hand side has all the chunk's rows of features.
            unsafe {
                let size = [queries.len(), width];
                multiply(simd, size, left, state, &mut rows, Onto::Replace);
                if !keys.is_empty() {
                    triangle.scores(simd, left, columns, buffers.scores, stride);
                    triangle.weigh(simd, buffers.scores, stride, values, width, &mut rows);
                }
            }
            let padded = rows.stride;
            for row in 0..queries.len() {
                let scores = &buffers.scores[row * stride..row * stride + triangle.seen(row)];
                let place = queries.start + row;
                let total = dot(simd, query.row(place), buffers.totals) + sum(simd, scores);
                let sums = &buffers.rows[row * padded..row * padded + width];
                self.finish(simd, head, place, sums, total);
            }
        }
        if !keys.is_empty() {
            self.join(
                simd,
                keys,
                values,
                buffers.left,
                buffers.state,
                buffers.totals,
            );
        }
    }

    /// Writes a row of context.
    #[inline(always)]
    fn finish<S: Simd>(&self, simd: S, head: usize, row: usize, sums: &[f32], total: f32) {
        let number = (self.batch * self.shape.heads + head) * self.shape.queries + row;
        // SAFETY: `forward` checked the sizes, and this head is no other task's.
        let context = unsafe {
            *self.out.denominators.add(number) = total;
            self.out.context.row(self.batch, head, row)
        };
        let inverse = super::inverse(total);
        scale_into(simd, sums, inverse, context);
    }
}
