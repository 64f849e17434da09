//! The backward pass. With slopes `h = g / d` and `c = -h·o` of the sums above and below the line of a query's context `o`,
//!
//! ```text
//! dφq = Σ (h·v + c) φk     over the keys that the query sees: forwards, with the state of keys and values
//! dφk = Σ (h·v + c) φq     over the queries that see the key: backwards, with the state of queries and slopes
//! dv  = Σ (φq·φk) h
//! ```
//!
//! A value with a one behind it, and `h` with `c` behind it, make one product of each sum: a wide row is `[v, 1]` or `[h, c]`.

mod buffers;

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use self::buffers::{Buffers, Sizes, sizes};
use super::tiles::{Left, Panels, Sums, Triangle, dense, multiply, pack, pack_left, pack_turned};
use super::{CHUNK, Chunk, Heads, MANY, Options, Plan, Rows, Shape, Target, fits};
use crate::elementwise::scale_into;
use crate::gemm::with_scratch;
use crate::linear::dot;
use crate::micro::{self, Onto, TileSize, View};
use crate::pack::pack_panels_with;
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Where gradients go, `[batch, length, heads, width]` each; every number is written.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Of the queries' features.
    pub query: &'a mut [f32],
    /// Of the keys' features.
    pub key: &'a mut [f32],
    /// Of the values.
    pub value: &'a mut [f32],
}

/// Gradients of linear attention, given the gradient `upstream` of its context and what [`super::forward`] gave. Nothing
/// flows into the starting state.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    [context, upstream]: [Heads; 2],
    denominators: &[f32],
    options: &Options,
    gradients: Gradients,
) {
    options.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    fits("denominators", denominators.len(), rows);
    let Shape {
        batch,
        heads,
        key_value_heads,
        queries,
        keys,
        head_width,
        value_width,
    } = *shape;
    let shared = |width: usize| [batch, keys, key_value_heads, width];
    let out = Output {
        query: Target::new(
            "query",
            gradients.query,
            [batch, queries, heads, head_width],
        ),
        key: Target::new("key", gradients.key, shared(head_width)),
        value: Target::new("value", gradients.value, shared(value_width)),
    };
    let instructions = simd::instructions();
    let sizes = sizes(shape, TileSize::of(instructions));
    let task = |index: usize| {
        let (batch, shared) = (index / key_value_heads, index % key_value_heads);
        // The buffers are lent outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, sizes.iter().sum(), |scratch| {
            let kernel = Group {
                shape,
                query,
                key: Rows::new(key, batch, shared, head_width),
                value: Rows::new(value, batch, shared, value_width),
                context,
                upstream,
                denominators,
                options,
                plan: options.plan(shape, batch),
                batch,
                shared,
                out,
                scratch,
                sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let groups = batch * key_value_heads;
    let work = (rows + groups * keys) * head_width * value_width;
    if work < 1 << 16 {
        (0..groups).for_each(task);
    } else {
        threads::each(groups, task);
    }
}

/// Where gradients go. Each task writes to heads of its own.
#[derive(Clone, Copy)]
struct Output {
    query: Target,
    key: Target,
    value: Target,
}

/// The sizes of the buffers, in the order of [`Buffers`].
/// One key-value head and the query heads that it serves.
struct Group<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Rows<'a>,
    value: Rows<'a>,
    context: Heads<'a>,
    upstream: Heads<'a>,
    denominators: &'a [f32],
    options: &'a Options<'a>,
    plan: Plan,
    batch: usize,
    shared: usize,
    out: Output,
    scratch: &'a mut [f32],
    sizes: Sizes,
}

impl WithSimd for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let scratch = std::mem::take(&mut self.scratch);
        let mut buffers = Buffers::cut(scratch, self.sizes);
        self.forwards(simd, &mut buffers);
        self.backwards(simd, &mut buffers);
    }
}

impl Group<'_> {
    fn heads(&self) -> Range<usize> {
        let group = self.shape.heads / self.shape.key_value_heads;
        self.shared * group..(self.shared + 1) * group
    }

    /// The gradients of the queries.
    #[inline(always)]
    fn forwards<S: Simd>(&self, simd: S, buffers: &mut Buffers) {
        self.begin::<S>(buffers.state);
        let before = self.plan.before();
        let mut first = before.start;
        while first < before.end {
            let many = first..before.end.min(first + MANY);
            first = many.end;
            self.widen(many.clone(), buffers.values);
            self.join_keys(simd, many, buffers);
        }
        for index in 0..self.plan.chunks() {
            let chunk = self.plan.chunk(index);
            self.chunk_of_queries(simd, &chunk, buffers);
        }
    }

    /// The gradients of keys and values.
    #[inline(always)]
    fn backwards<S: Simd>(&self, simd: S, buffers: &mut Buffers) {
        buffers.state.fill(0.0);
        for index in (0..self.plan.chunks()).rev() {
            let chunk = self.plan.chunk(index);
            self.chunk_of_keys(simd, &chunk, buffers);
        }
        let before = self.plan.before();
        let mut first = before.start;
        while first < before.end {
            let keys = first..before.end.min(first + CHUNK);
            first = keys.end;
            let chunk = Chunk {
                queries: 0..0,
                keys,
                shift: 0,
            };
            self.chunk_of_keys(simd, &chunk, buffers);
        }
        let real = &self.plan.real;
        for key in (0..real.start).chain(real.end..self.plan.keys) {
            // SAFETY: the key exists, and its head is no other task's.
            unsafe {
                self.out.key.row(self.batch, self.shared, key).fill(0.0);
                self.out.value.row(self.batch, self.shared, key).fill(0.0);
            }
        }
    }

    /// Lays out the starting state.
    #[inline(always)]
    fn begin<S: Simd>(&self, state: &mut [f32]) {
        state.fill(0.0);
        let Some(start) = self.options.start else {
            return;
        };
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let (panel, wide) = (micro::columns::<S>(), width + 1);
        let index = self.batch * self.shape.key_value_heads + self.shared;
        for feature in 0..features {
            let at = index * features + feature;
            let place = feature / panel * wide * panel + feature % panel;
            let sums = &start.sums[at * width..(at + 1) * width];
            for (column, sum) in sums.iter().chain([&start.totals[at]]).enumerate() {
                state[place + column * panel] = *sum;
            }
        }
    }

    /// Rows of values with a one behind each.
    #[inline(always)]
    fn widen(&self, keys: Range<usize>, out: &mut [f32]) {
        let width = self.shape.value_width;
        for (out, key) in out.chunks_exact_mut(width + 1).zip(keys) {
            out[..width].copy_from_slice(self.value.row(key));
            out[width] = 1.0;
        }
    }

    /// The slopes of a chunk's queries.
    #[inline(always)]
    fn slopes<S: Simd>(&self, simd: S, head: usize, queries: Range<usize>, out: &mut [f32]) {
        let width = self.shape.value_width;
        let context = Rows::new(self.context, self.batch, head, width);
        let upstream = Rows::new(self.upstream, self.batch, head, width);
        let first = (self.batch * self.shape.heads + head) * self.shape.queries;
        for (out, query) in out.chunks_exact_mut(width + 1).zip(queries) {
            let total = self.denominators[first + query];
            // Where the context is zeros for want of a denominator, nothing flows back.
            let inverse = super::inverse(total);
            let (above, below) = out.split_at_mut(width);
            scale_into(simd, upstream.row(query), inverse, above);
            below[0] = -dot(simd, above, context.row(query));
        }
    }

    /// Adds some keys, whose wide rows are made, to the state of the forward direction.
    #[inline(always)]
    fn join_keys<S: Simd>(&self, simd: S, keys: Range<usize>, buffers: &mut Buffers) {
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
        self.join(simd, buffers.values, features, buffers.left, buffers.state);
    }

    /// Adds products of wide rows and features to a state.
    #[inline(always)]
    fn join<S: Simd>(
        &self,
        simd: S,
        wide_rows: &[f32],
        features: Panels,
        left: &mut [f32],
        state: &mut [f32],
    ) {
        let wide = self.shape.value_width + 1;
        let rows = features.depth;
        assert!(wide_rows.len() >= rows * wide);
        // SAFETY: there are so many wide rows, and the left-hand side is packed from them.
        unsafe {
            let left = pack_left(simd, dense(wide_rows, wide), rows, wide, left);
            let mut sums = Sums::panels::<S>(state, wide);
            let size = [wide, self.shape.head_width];
            multiply(simd, size, left, features, &mut sums, Onto::Add);
        }
    }

    #[inline(always)]
    fn chunk_of_queries<S: Simd>(&self, simd: S, chunk: &Chunk, buffers: &mut Buffers) {
        let features = self.shape.head_width;
        let wide = self.shape.value_width + 1;
        let (queries, keys) = (chunk.queries.clone(), chunk.keys.clone());
        self.widen(keys.clone(), buffers.values);
        let view = self.key.view(keys.clone());
        // SAFETY: the view checks that all rows lie in their slice, and so many wide rows were just made.
        let (key_panels, value_columns) = unsafe {
            let values = dense(buffers.values, wide);
            (
                pack(simd, view, keys.len(), features, buffers.features),
                pack_turned(simd, values, keys.len(), wide, buffers.value_columns),
            )
        };
        let triangle = Triangle {
            rows: queries.len(),
            keys: keys.len(),
            shift: chunk.shift,
        };
        let stride = CHUNK.next_multiple_of(micro::columns::<S>());
        for head in self.heads() {
            self.slopes(simd, head, queries.clone(), buffers.slopes);
            let left = Left::rows(dense(buffers.slopes, wide));
            let state = Panels {
                data: buffers.state,
                depth: wide,
            };
            let mut rows = Sums::rows::<S>(buffers.feature_rows, features);
            // SAFETY: so many rows of slopes were just made.
            unsafe {
                let size = [queries.len(), features];
                multiply(simd, size, left, state, &mut rows, Onto::Replace);
                if !keys.is_empty() {
                    let slopes = &mut *buffers.triangles;
                    triangle.scores(simd, left, value_columns, slopes, stride);
                    triangle.weigh(simd, slopes, stride, key_panels, features, &mut rows);
                }
                write(self.out.query, self.batch, head, queries.clone(), &rows);
            }
        }
        if !keys.is_empty() {
            self.join(
                simd,
                buffers.values,
                key_panels,
                buffers.left,
                buffers.state,
            );
        }
    }

    /// The gradients of a chunk's keys; then its queries join the state.
    #[inline(always)]
    fn chunk_of_keys<S: Simd>(&self, simd: S, chunk: &Chunk, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let wide = width + 1;
        let (queries, keys) = (chunk.queries.clone(), chunk.keys.clone());
        self.widen(keys.clone(), buffers.values);
        if !keys.is_empty() {
            self.later_queries(simd, keys.clone(), buffers);
        }
        let view = self.key.view(keys.clone());
        // SAFETY: the view checks that all rows lie in their slice, and so many wide rows were just made.
        let (key_columns, value_columns) = unsafe {
            let values = dense(buffers.values, wide);
            (
                pack_turned(simd, view, keys.len(), features, buffers.key_columns),
                pack_turned(simd, values, keys.len(), wide, buffers.value_columns),
            )
        };
        let triangle = Triangle {
            rows: queries.len(),
            keys: keys.len(),
            shift: chunk.shift,
        };
        let stride = CHUNK.next_multiple_of(micro::columns::<S>());
        let (weights, weight_slopes) = buffers.triangles.split_at_mut(CHUNK * stride);
        let mut dkeys = Sums::rows::<S>(buffers.feature_rows, features);
        let mut dvalues = Sums::rows::<S>(buffers.value_rows, width);
        for head in self.heads() {
            if queries.is_empty() {
                break;
            }
            self.slopes(simd, head, queries.clone(), buffers.slopes);
            let slopes = dense(buffers.slopes, wide);
            let query = Rows::new(self.query, self.batch, head, features).view(queries.clone());
            // SAFETY: the view checks that all rows lie in their slice, and so many rows of slopes were just made.
            let query_panels =
                unsafe { pack(simd, query, queries.len(), features, buffers.features) };
            if !keys.is_empty() {
                // SAFETY: as above.
                let slope_panels = unsafe {
                    triangle.scores(simd, Left::rows(query), key_columns, weights, stride);
                    let left = Left::rows(slopes);
                    triangle.scores(simd, left, value_columns, weight_slopes, stride);
                    pack(simd, slopes, queries.len(), width, buffers.slope_panels)
                };
                triangle.weigh_back(simd, weights, stride, slope_panels, width, &mut dvalues);
                let slopes = &*weight_slopes;
                triangle.weigh_back(simd, slopes, stride, query_panels, features, &mut dkeys);
            }
            self.join(
                simd,
                buffers.slopes,
                query_panels,
                buffers.left,
                buffers.state,
            );
        }
        // SAFETY: the keys exist, and their head is no other task's.
        unsafe {
            write(self.out.key, self.batch, self.shared, keys.clone(), &dkeys);
            write(self.out.value, self.batch, self.shared, keys, &dvalues);
        }
    }

    /// What queries after a chunk send back to its keys and values, whose wide rows are made.
    #[inline(always)]
    fn later_queries<S: Simd>(&self, simd: S, keys: Range<usize>, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let wide = width + 1;
        turn::<S>(simd, buffers.state, features, width, buffers.turned);
        let state = Panels {
            data: buffers.state,
            depth: wide,
        };
        let turned = Panels {
            data: buffers.turned,
            depth: features,
        };
        let mut dkeys = Sums::rows::<S>(buffers.feature_rows, features);
        let mut dvalues = Sums::rows::<S>(buffers.value_rows, width);
        // SAFETY: so many wide rows were made, and the view checks that all keys lie in their slice.
        unsafe {
            let values = Left::rows(dense(buffers.values, wide));
            let size = [keys.len(), features];
            multiply(simd, size, values, state, &mut dkeys, Onto::Replace);
            let left = Left::rows(self.key.view(keys.clone()));
            let size = [keys.len(), width];
            multiply(simd, size, left, turned, &mut dvalues, Onto::Replace);
        }
    }
}

/// A state with rows and columns exchanged, block by block.
#[inline(always)]
fn turn<S: Simd>(simd: S, state: &[f32], features: usize, width: usize, out: &mut [f32]) {
    let panel = micro::columns::<S>();
    let wide = width + 1;
    for column in (0..width).step_by(panel) {
        for feature in (0..features).step_by(panel) {
            let rows = panel.min(features - feature);
            let columns = panel.min(width - column);
            let block = &state[feature * wide + column * panel..][..columns * panel];
            let view = View {
                start: block.as_ptr(),
                row_stride: 1,
                column_stride: panel,
            };
            let out = &mut out[column * features + feature * panel..][..rows * panel];
            // SAFETY: the block has so many columns of a panel.
            unsafe { pack_panels_with(simd, view, rows, columns, panel, out) };
        }
    }
}

/// Writes rows of a gradient.
///
/// # Safety
/// The rows must exist, and nobody else may use them.
#[inline(always)]
unsafe fn write(to: Target, batch: usize, head: usize, range: Range<usize>, rows: &Sums) {
    for (row, place) in range.enumerate() {
        let from = &rows.data[row * rows.stride..][..to.width];
        // SAFETY: the caller's promise.
        unsafe { to.row(batch, head, place) }.copy_from_slice(from);
    }
}
