//! The backward pass: recomputes the weights, tile by tile, from the saved log-sum-exp. Dao et al. 2022.

mod buffers;
mod score_gradients;
mod tile_schedule;

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use self::buffers::{BufferSizes, Buffers, buffer_sizes};
use self::tile_schedule::Tile;
use super::key_ranges::KeyRanges;
use super::scores::{AddProduct, PanelProduct, copy_row, pack_columns, padded_rows};
use super::{BiasLayout, Heads, Options, Shape, Strides};
use crate::gemm::with_scratch;
use crate::linear::dot;
use crate::microkernel::{self, TileSize, View};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Where the gradients are written: overwritten, not accumulated.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// The gradient of the queries.
    pub query: &'a mut [f32],
    /// Its layout.
    pub query_strides: Strides,
    /// The gradient of the keys.
    pub key: &'a mut [f32],
    /// Its layout.
    pub key_strides: Strides,
    /// The gradient of the values.
    pub value: &'a mut [f32],
    /// Its layout.
    pub value_strides: Strides,
    /// The gradient of the bias, if needed: [`BiasLayout::head_len`] elements for each sequence and head; without a
    /// bias, those of [`BiasLayout::PerPair`].
    pub bias: Option<&'a mut [f32]>,
}

/// The results of [`super::forward`], saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub struct SavedForward<'a> {
    /// The context.
    pub context: Heads<'a>,
    /// The log-sum-exp of each row of scores.
    pub log_sum_exp: &'a [f32],
}

/// The gradients of the results of [`super::forward`].
#[derive(Clone, Copy, Debug)]
pub struct OutputGradients<'a> {
    /// The gradient of the context.
    pub context: Heads<'a>,
    /// The gradient of the log-sum-exp, if it is used; ignored in fully masked rows.
    pub log_sum_exp: Option<&'a [f32]>,
}

/// The backward pass of attention, from its results and their gradients.
///
/// # Panics
/// When a slice is too short for the shape.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    saved: SavedForward,
    output_gradients: OutputGradients,
    options: &Options,
    gradients: Gradients,
) {
    shape.check();
    options.mask.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    for log_sum_exp in [Some(saved.log_sum_exp), output_gradients.log_sum_exp] {
        let count = log_sum_exp.map_or(rows, <[f32]>::len);
        assert_eq!(
            count, rows,
            "attention: log_sum_exp has {count} values for {rows} rows"
        );
    }
    let bias_layout = options.bias.map_or(BiasLayout::PerPair, |bias| bias.layout);
    let out = GradientPointers::new(shape, gradients, bias_layout);
    let instructions = simd::instructions();
    let tile = TileSize::of(instructions);
    let sizes = buffer_sizes(shape, tile, [key, query, output_gradients.context]);
    let task = |index: usize| {
        // Scratch is borrowed outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, sizes.iter().sum(), |scratch| {
            let kernel = BackwardTask {
                shape,
                query,
                key,
                value,
                saved,
                output_gradients,
                options,
                batch: index / shape.key_value_heads,
                key_value_head: index % shape.key_value_heads,
                out,
                scratch,
                sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let tasks = shape.batch * shape.key_value_heads;
    if rows * shape.keys * (shape.head_width + shape.value_width) < 1 << 16 {
        (0..tasks).for_each(task);
    } else {
        threads::parallel_for(tasks, task);
    }
}

/// Gradient buffers. Each task writes its own heads.
#[derive(Clone, Copy)]
struct GradientPointers {
    query: *mut f32,
    query_strides: Strides,
    key: *mut f32,
    key_strides: Strides,
    value: *mut f32,
    value_strides: Strides,
    bias: Option<*mut f32>,
    bias_layout: BiasLayout,
}

// SAFETY: each task writes only to its own key-value head and the query heads that it serves.
unsafe impl Send for GradientPointers {}
// SAFETY: as above; the pointers themselves are only read.
unsafe impl Sync for GradientPointers {}

impl GradientPointers {
    /// Panics unless all rows are disjoint and lie inside their slices. Zeroes the gradient of the bias, to which tasks may
    /// add.
    fn new(shape: &Shape, gradients: Gradients, bias_layout: BiasLayout) -> Self {
        let Gradients {
            query,
            query_strides,
            key,
            key_strides,
            value,
            value_strides,
            bias,
        } = gradients;
        let queries = [shape.batch, shape.heads, shape.queries];
        let keys = [shape.batch, shape.key_value_heads, shape.keys];
        query_strides.check_disjoint(queries, shape.head_width, query.len());
        key_strides.check_disjoint(keys, shape.head_width, key.len());
        value_strides.check_disjoint(keys, shape.value_width, value.len());
        let bias_len = bias.as_ref().map_or(usize::MAX, |it| it.len());
        assert!(
            bias_len >= shape.batch * shape.heads * bias_layout.head_len(shape),
            "attention: a bias gradient of {bias_len} is too short for {shape:?}"
        );
        Self {
            query: query.as_mut_ptr(),
            query_strides,
            key: key.as_mut_ptr(),
            key_strides,
            value: value.as_mut_ptr(),
            value_strides,
            bias: bias.map(|bias| {
                bias.fill(0.0);
                bias.as_mut_ptr()
            }),
            bias_layout,
        }
    }
}

/// One key-value head and the query heads that it serves.
struct BackwardTask<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Heads<'a>,
    value: Heads<'a>,
    saved: SavedForward<'a>,
    output_gradients: OutputGradients<'a>,
    options: &'a Options<'a>,
    batch: usize,
    key_value_head: usize,
    out: GradientPointers,
    scratch: &'a mut [f32],
    sizes: BufferSizes,
}

impl WithSimd for BackwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Shape {
            keys,
            head_width,
            value_width,
            ..
        } = *self.shape;
        let mut buffers = Buffers::split(std::mem::take(&mut self.scratch), self.sizes);
        let (batch, key_value_head) = (self.batch, self.key_value_head);
        pack_columns(
            simd,
            self.key,
            batch,
            key_value_head,
            keys,
            head_width,
            buffers.key_panels,
        );
        pack_columns(
            simd,
            self.value,
            batch,
            key_value_head,
            keys,
            value_width,
            buffers.value_panels,
        );
        let at = [batch, key_value_head];
        let key_rows = padded_rows::<S>(self.key, at, keys, head_width, buffers.copies[0]);
        buffers.key_gradients.fill(0.0);
        buffers.value_gradients.fill(0.0);
        let group = self.shape.heads / self.shape.key_value_heads;
        let mut head = key_value_head * group;
        while head < (key_value_head + 1) * group {
            self.process_head(simd, head, key_rows, &mut buffers);
            head += 1;
        }
        let out = &self.out;
        // SAFETY: `GradientPointers::new` checked that the heads lie inside the slices, and no other task has this head.
        unsafe {
            let (rows, strides) = (&*buffers.key_gradients, out.key_strides);
            write_rows::<S>(out.key, strides, at, rows, [keys, head_width]);
            let (rows, strides) = (&*buffers.value_gradients, out.value_strides);
            write_rows::<S>(out.value, strides, at, rows, [keys, value_width]);
        }
    }
}

/// The rows of a head, padded to whole tiles.
#[derive(Clone, Copy)]
struct HeadViews {
    key: View,
    query: View,
    output_gradients: View,
}

impl BackwardTask<'_> {
    /// Writes the gradients of a head's queries, and accumulates those of its keys and values.
    #[inline(always)]
    fn process_head<S: Simd>(&self, simd: S, head: usize, key: View, buffers: &mut Buffers) {
        let Shape {
            queries,
            head_width,
            value_width,
            ..
        } = *self.shape;
        let batch = self.batch;
        let at = [batch, head];
        let [_, query_copy, output_gradient_copy] = &mut buffers.copies;
        let output_gradients = self.output_gradients.context;
        let views = HeadViews {
            key,
            query: padded_rows::<S>(self.query, at, queries, head_width, query_copy),
            output_gradients: padded_rows::<S>(
                output_gradients,
                at,
                queries,
                value_width,
                output_gradient_copy,
            ),
        };
        for (query, delta) in buffers.deltas.iter_mut().enumerate() {
            let context = self.saved.context.row(batch, head, query, value_width);
            let output_gradients =
                self.output_gradients
                    .context
                    .row(batch, head, query, value_width);
            *delta = dot(simd, context, output_gradients);
        }
        if let Some(gradients) = self.output_gradients.log_sum_exp {
            // The derivative of the log-sum-exp by a score is its weight.
            let first = self.shape.row_index(batch, head, 0);
            for (delta, gradient) in buffers.deltas.iter_mut().zip(&gradients[first..]) {
                *delta -= gradient;
            }
        }
        buffers.query_gradients.fill(0.0);
        for tile in self.tile_schedule(head, microkernel::nr::<S>()) {
            self.accumulate_tile(simd, head, &tile, views, buffers);
        }
        let out = &self.out;
        // SAFETY: `GradientPointers::new` checked that the heads lie inside the slices, and no other task has this head.
        unsafe {
            let (rows, strides) = (&*buffers.query_gradients, out.query_strides);
            write_rows::<S>(out.query, strides, at, rows, [queries, head_width]);
        }
    }

    /// Recomputes the weights of a tile, and accumulates its part of all gradients.
    #[inline(always)]
    fn accumulate_tile<S: Simd>(
        &self,
        simd: S,
        head: usize,
        tile: &Tile,
        views: HeadViews,
        buffers: &mut Buffers,
    ) {
        let Tile { queries, keys, run } = tile;
        let key_ranges =
            KeyRanges::visible(self.options, self.shape, self.batch, queries, keys, run);
        self.compute_products(simd, tile, views, buffers, &key_ranges);
        let stride = self.shape.score_stride();
        for row in 0..queries.len() {
            let range = row * stride..(row + 1) * stride;
            let (weights, score_gradients) = (
                &mut buffers.weights[range.clone()],
                &mut buffers.score_gradients[range],
            );
            let delta = buffers.deltas[queries.start + row];
            let at = [self.batch, head, queries.start + row];
            self.score_gradients(simd, at, tile, weights, score_gradients, delta);
        }
        self.accumulate_gradients(simd, tile, views, buffers, &key_ranges);
    }

    /// The products of queries and keys, and of output gradients and values.
    #[inline(always)]
    fn compute_products<S: Simd>(
        &self,
        simd: S,
        tile: &Tile,
        views: HeadViews,
        buffers: &mut Buffers,
        key_ranges: &KeyRanges,
    ) {
        let Tile { queries, keys, .. } = tile;
        let [head_width, value_width] = [self.shape.head_width, self.shape.value_width];
        // SAFETY: the rows of the queries and the packed panels of the tile hold what the products read, and the tiles
        // of weights and score gradients have room for whole panels.
        unsafe {
            let product = PanelProduct {
                rows: queries.len(),
                columns: keys.len(),
                depth: head_width,
                a: views.query.skip_rows(queries.start),
                b: &buffers.key_panels[keys.start * head_width..],
                c: &mut *buffers.weights,
                c_stride: self.shape.score_stride(),
                key_ranges,
            };
            product.run(simd);
            let product = PanelProduct {
                rows: queries.len(),
                columns: keys.len(),
                depth: value_width,
                a: views.output_gradients.skip_rows(queries.start),
                b: &buffers.value_panels[keys.start * value_width..],
                c: &mut *buffers.score_gradients,
                c_stride: self.shape.score_stride(),
                key_ranges,
            };
            product.run(simd);
        }
    }

    /// Accumulates the gradients of values, keys and queries: `dV += Pᵀ dO`, `dK += dSᵀ Q`, `dQ += dS K`.
    #[inline(always)]
    fn accumulate_gradients<S: Simd>(
        &self,
        simd: S,
        tile: &Tile,
        views: HeadViews,
        buffers: &mut Buffers,
        key_ranges: &KeyRanges,
    ) {
        let Tile { queries, keys, .. } = tile;
        let widths = [self.shape.head_width, self.shape.value_width];
        let [head_width, value_width] = widths.map(|it| microkernel::tile_size::<S>().padded(it));
        let elements = |rows: &Range<usize>, width: usize| rows.start * width..rows.end * width;
        let [weights, score_gradients] =
            [&*buffers.weights, &*buffers.score_gradients].map(|data| View {
                start: data.as_ptr(),
                row_stride: self.shape.score_stride(),
                column_stride: 1,
            });
        let query_ranges = key_ranges.transposed(queries.len(), keys.len());
        // SAFETY: the tiles hold a row of keys for each query, read by rows or by columns, and all rows of the head are
        // readable in whole microkernel tiles.
        unsafe {
            let product = AddProduct {
                rows: keys.len(),
                depth: queries.len(),
                a: weights.transposed(),
                b: views.output_gradients.skip_rows(queries.start),
                c: &mut buffers.value_gradients[elements(keys, value_width)],
                padded_width: value_width,
                key_ranges: &query_ranges,
            };
            product.run(simd);
            let product = AddProduct {
                rows: keys.len(),
                depth: queries.len(),
                a: score_gradients.transposed(),
                b: views.query.skip_rows(queries.start),
                c: &mut buffers.key_gradients[elements(keys, head_width)],
                padded_width: head_width,
                key_ranges: &query_ranges,
            };
            product.run(simd);
            let product = AddProduct {
                rows: queries.len(),
                depth: keys.len(),
                a: score_gradients,
                b: views.key.skip_rows(keys.start),
                c: &mut buffers.query_gradients[elements(queries, head_width)],
                padded_width: head_width,
                key_ranges,
            };
            product.run(simd);
        }
    }
}

/// Copies rows, padded to whole tiles, to the strided rows of a head.
///
/// # Safety
/// The rows of the head must lie inside the memory, and nothing else may access them.
#[inline(always)]
unsafe fn write_rows<S: Simd>(
    start: *mut f32,
    strides: Strides,
    [batch, head]: [usize; 2],
    padded_rows: &[f32],
    [rows, width]: [usize; 2],
) {
    let padded_width = microkernel::tile_size::<S>().padded(width);
    for row in 0..rows {
        // SAFETY: guaranteed by the caller.
        let to = unsafe {
            std::slice::from_raw_parts_mut(start.add(strides.at(batch, head, row)), width)
        };
        copy_row::<S>(&padded_rows[row * padded_width..][..width], to);
    }
}
