//! The backward pass: the weights are made again, tile by tile, from the saved log-sums. Dao et al. 2022.

mod buffers;
mod meetings;
mod row;

use std::cell::RefCell;

use pulp::{Simd, WithSimd};

use self::buffers::{Buffers, Sizes, buffer_sizes};
use self::meetings::Meeting;
use super::reach::Reach;
use super::scores::{add_product, copy_row, pack_columns, product_with_panels, whole_rows};
use super::{BiasOf, Heads, Options, Shape, Strides};
use crate::gemm::with_scratch;
use crate::linear::dot;
use crate::micro::{self, TileSize, View};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Where gradients go; every number of the rows is written.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Of the queries.
    pub query: &'a mut [f32],
    /// Where they stand.
    pub query_strides: Strides,
    /// Of the keys.
    pub key: &'a mut [f32],
    /// Where they stand.
    pub key_strides: Strides,
    /// Of the values.
    pub value: &'a mut [f32],
    /// Where they stand.
    pub value_strides: Strides,
    /// Of the bias, if asked for: for each sequence and head as many numbers as [`BiasOf::size`] says; of pairs, where there
    /// is no bias.
    pub bias: Option<&'a mut [f32]>,
}

/// What [`super::forward`] gave.
#[derive(Clone, Copy, Debug)]
pub struct Attended<'a> {
    /// The context.
    pub context: Heads<'a>,
    /// Of each row, the logarithm of its sum of exponentials.
    pub log_sums: &'a [f32],
}

/// The gradients of what [`super::forward`] gave.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    /// Of the context.
    pub context: Heads<'a>,
    /// Of the log-sums, if anybody reads them. That of a row that saw nothing has no effect.
    pub log_sums: Option<&'a [f32]>,
}

/// Gradients of attention, given those of its results and the results themselves.
///
/// # Panics
/// When a slice is too short for the shape.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    attended: Attended,
    upstream: Upstream,
    options: &Options,
    gradients: Gradients,
) {
    shape.check();
    options.mask.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    for log_sums in [Some(attended.log_sums), upstream.log_sums] {
        let count = log_sums.map_or(rows, <[f32]>::len);
        assert_eq!(count, rows, "attention: {count} log-sums for {rows} rows");
    }
    let queries = [shape.batch, shape.heads, shape.queries];
    let keys = [shape.batch, shape.key_value_heads, shape.keys];
    let (width, wide) = (shape.head_width, shape.value_width);
    gradients
        .query_strides
        .check_apart(queries, width, gradients.query.len());
    gradients
        .key_strides
        .check_apart(keys, width, gradients.key.len());
    gradients
        .value_strides
        .check_apart(keys, wide, gradients.value.len());
    let biases = gradients.bias.as_ref().map_or(usize::MAX, |it| it.len());
    let bias_of = options.bias.map_or(BiasOf::Pairs, |bias| bias.of);
    assert!(
        biases >= shape.batch * shape.heads * bias_of.size(shape),
        "attention: a gradient of {biases} numbers is too short for {shape:?}"
    );
    let out = Output {
        query: gradients.query.as_mut_ptr(),
        query_strides: gradients.query_strides,
        key: gradients.key.as_mut_ptr(),
        key_strides: gradients.key_strides,
        value: gradients.value.as_mut_ptr(),
        value_strides: gradients.value_strides,
        bias: gradients.bias.map(|bias| {
            bias.fill(0.0);
            bias.as_mut_ptr()
        }),
        bias_of,
    };
    let instructions = simd::instructions();
    let tile = TileSize::of(instructions);
    let sizes = buffer_sizes(shape, tile, [key, query, upstream.context]);
    let task = |index: usize| {
        // The buffers are lent outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, sizes.iter().sum(), |scratch| {
            let kernel = Group {
                shape,
                query,
                key,
                value,
                attended,
                upstream,
                options,
                batch: index / shape.key_value_heads,
                shared: index % shape.key_value_heads,
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
        threads::each(tasks, task);
    }
}

/// Where gradients go. Each task writes to heads of its own.
#[derive(Clone, Copy)]
struct Output {
    query: *mut f32,
    query_strides: Strides,
    key: *mut f32,
    key_strides: Strides,
    value: *mut f32,
    value_strides: Strides,
    bias: Option<*mut f32>,
    bias_of: BiasOf,
}

// SAFETY: each task writes only to its own key-value head and the query heads that it serves.
unsafe impl Send for Output {}
// SAFETY: as above; the pointers themselves are only read.
unsafe impl Sync for Output {}

/// One key-value head and the query heads that it serves.
struct Group<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Heads<'a>,
    value: Heads<'a>,
    attended: Attended<'a>,
    upstream: Upstream<'a>,
    options: &'a Options<'a>,
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
        let Shape {
            keys,
            head_width,
            value_width,
            ..
        } = *self.shape;
        let [width, wide] = self.padded::<S>();
        let mut buffers = Buffers::cut(std::mem::take(&mut self.scratch), self.sizes);
        let (batch, shared) = (self.batch, self.shared);
        pack_columns(
            simd,
            self.key,
            batch,
            shared,
            keys,
            head_width,
            buffers.key_panels,
        );
        pack_columns(
            simd,
            self.value,
            batch,
            shared,
            keys,
            value_width,
            buffers.value_panels,
        );
        let at = [batch, shared];
        let key_rows = whole_rows::<S>(self.key, at, keys, head_width, buffers.copies[0]);
        buffers.key_sums.fill(0.0);
        buffers.value_sums.fill(0.0);
        let group = self.shape.heads / self.shape.key_value_heads;
        let mut head = shared * group;
        while head < (shared + 1) * group {
            self.head(simd, head, key_rows, &mut buffers);
            head += 1;
        }
        let out = &self.out;
        // SAFETY: `backward` checked that the heads lie inside the slices, and no other task has this head.
        unsafe {
            write_rows::<S>(
                out.key,
                out.key_strides,
                [batch, shared],
                buffers.key_sums,
                keys,
                head_width,
                width,
            );
            write_rows::<S>(
                out.value,
                out.value_strides,
                [batch, shared],
                buffers.value_sums,
                keys,
                value_width,
                wide,
            );
        }
    }
}

/// The rows of a head in whole tiles.
#[derive(Clone, Copy)]
struct Whole {
    key: View,
    query: View,
    upstream: View,
}

impl Group<'_> {
    #[inline(always)]
    fn head<S: Simd>(&self, simd: S, head: usize, key: View, buffers: &mut Buffers) {
        let Shape {
            queries,
            head_width,
            value_width,
            ..
        } = *self.shape;
        let batch = self.batch;
        let at = [batch, head];
        let [_, query_copy, upstream_copy] = &mut buffers.copies;
        let upstream = self.upstream.context;
        let rows = Whole {
            key,
            query: whole_rows::<S>(self.query, at, queries, head_width, query_copy),
            upstream: whole_rows::<S>(upstream, at, queries, value_width, upstream_copy),
        };
        for (query, mean) in buffers.means.iter_mut().enumerate() {
            let context = self.attended.context.row(batch, head, query, value_width);
            let upstream = self.upstream.context.row(batch, head, query, value_width);
            *mean = dot(simd, context, upstream);
        }
        if let Some(slopes) = self.upstream.log_sums {
            // A log-sum grows with each score as much as the score weighs.
            let first = self.shape.row(batch, head, 0);
            for (mean, slope) in buffers.means.iter_mut().zip(&slopes[first..]) {
                *mean -= slope;
            }
        }
        buffers.query_sums.fill(0.0);
        for meeting in self.meetings(head, micro::columns::<S>()) {
            self.meet(simd, head, &meeting, rows, buffers);
        }
        let [width, _] = self.padded::<S>();
        let out = &self.out;
        // SAFETY: `backward` checked that the heads lie inside the slices, and no other task has this head.
        unsafe {
            write_rows::<S>(
                out.query,
                out.query_strides,
                [batch, head],
                buffers.query_sums,
                queries,
                head_width,
                width,
            );
        }
    }

    /// A block of queries meets a tile of keys: its weights and slopes are made and added to all gradients.
    #[inline(always)]
    fn meet<S: Simd>(
        &self,
        simd: S,
        head: usize,
        meeting: &Meeting,
        rows: Whole,
        buffers: &mut Buffers,
    ) {
        let Meeting { block, keys, run } = meeting;
        let reach = Reach::of_queries(self.options, self.shape, self.batch, block, keys, run);
        self.score(simd, meeting, rows, buffers, &reach);
        let stride = self.shape.line();
        for row in 0..block.len() {
            let line = row * stride..(row + 1) * stride;
            let (weights, slopes) = (
                &mut buffers.weights[line.clone()],
                &mut buffers.slopes[line],
            );
            let mean = buffers.means[block.start + row];
            let at = [self.batch, head, block.start + row];
            self.row(simd, at, meeting, weights, slopes, mean);
        }
        self.spread(simd, meeting, rows, buffers, &reach);
    }

    /// The products of queries and keys, and of upstream gradients and values.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        simd: S,
        meeting: &Meeting,
        all: Whole,
        buffers: &mut Buffers,
        reach: &Reach,
    ) {
        let [head_width, value_width] = [self.shape.head_width, self.shape.value_width];
        let Meeting { block, keys, .. } = meeting;
        let (rows, tile, count) = (block.len(), keys.start, keys.len());
        let stride = self.shape.line();
        // SAFETY: the rows of the block and the packed panels of the tile hold what the products read, and the tiles
        // of weights and slopes have room for whole panels.
        unsafe {
            let panels = &buffers.key_panels[tile * head_width..];
            product_with_panels(
                simd,
                rows,
                count,
                head_width,
                all.query.after_rows(block.start),
                panels,
                buffers.weights,
                stride,
                reach,
            );
            let panels = &buffers.value_panels[tile * value_width..];
            product_with_panels(
                simd,
                rows,
                count,
                value_width,
                all.upstream.after_rows(block.start),
                panels,
                buffers.slopes,
                stride,
                reach,
            );
        }
    }

    /// Adds what weights and slopes send back to values, keys and queries.
    #[inline(always)]
    fn spread<S: Simd>(
        &self,
        simd: S,
        meeting: &Meeting,
        all: Whole,
        buffers: &mut Buffers,
        reach: &Reach,
    ) {
        let [width, wide] = self.padded::<S>();
        let Meeting { block, keys, .. } = meeting;
        let (rows, count, stride) = (block.len(), keys.len(), self.shape.line());
        let turned = |data: &[f32]| View {
            start: data.as_ptr(),
            row_stride: 1,
            column_stride: stride,
        };
        let turned_reach = reach.turned(rows, count);
        // SAFETY: the tiles hold `rows` rows of `count` numbers, read by rows or by columns, and all rows of the head are
        // readable in whole tiles.
        unsafe {
            let query_rows = all.query.after_rows(block.start);
            let upstream_rows = all.upstream.after_rows(block.start);
            let sums = &mut buffers.value_sums[keys.start * wide..keys.end * wide];
            let weights = turned(buffers.weights);
            add_product(
                simd,
                count,
                rows,
                weights,
                upstream_rows,
                sums,
                wide,
                &turned_reach,
            );
            let sums = &mut buffers.key_sums[keys.start * width..keys.end * width];
            let slopes = turned(buffers.slopes);
            add_product(
                simd,
                count,
                rows,
                slopes,
                query_rows,
                sums,
                width,
                &turned_reach,
            );
            let sums = &mut buffers.query_sums[block.start * width..block.end * width];
            let key_rows = all.key.after_rows(keys.start);
            let slopes = View {
                start: buffers.slopes.as_ptr(),
                row_stride: stride,
                column_stride: 1,
            };
            add_product(simd, rows, count, slopes, key_rows, sums, width, reach);
        }
    }

    /// The widths of padded rows of heads and of values.
    #[inline(always)]
    fn padded<S: Simd>(&self) -> [usize; 2] {
        let widths = [self.shape.head_width, self.shape.value_width];
        widths.map(|it| micro::size::<S>().padded(it))
    }
}

/// Writes padded rows to where a head's rows stand.
///
/// # Safety
/// The rows of the head must lie inside the memory, and nobody else may use them.
#[inline(always)]
unsafe fn write_rows<S: Simd>(
    start: *mut f32,
    strides: Strides,
    [batch, head]: [usize; 2],
    sums: &[f32],
    rows: usize,
    width: usize,
    padded: usize,
) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        let to = unsafe {
            std::slice::from_raw_parts_mut(start.add(strides.at(batch, head, row)), width)
        };
        copy_row::<S>(&sums[row * padded..row * padded + width], to);
    }
}
