//! The forward pass: an online softmax over tiles of keys. Milakov and Gimelshein 2018.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::decode::{self, KvRows};
use super::key_ranges::KeyRanges;
use super::online_softmax::OnlineSoftmax;
use super::pattern::{KeyRuns, block_end, intersect_tile};
use super::prefetch::{Prefetch, RowPointers};
use super::scores::{
    AddProduct, PackedScores, VisibleSpan, dropout_factors, is_read_in_place, pack_columns,
    padded_rows, scale_and_mask, union_of_visible_keys,
};
use super::{Heads, KEY_TILE, Options, QUERY_BLOCK, Shape, Strides};
use crate::elementwise::scale_into;
use crate::gemm::{split_scratch, with_scratch};
use crate::microkernel::{self, TileSize, View};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Attention; writes the context and the log-sum-exp of each row, `[batch, heads, queries]`.
///
/// # Panics
/// When a slice is too short for the shape.
pub fn forward(
    shape: &Shape,
    operands: [Heads; 3],
    options: &Options,
    context: &mut [f32],
    context_strides: Strides,
    log_sum_exp: &mut [f32],
) {
    let threads = threads::count();
    forward_for(
        threads,
        shape,
        operands,
        options,
        context,
        context_strides,
        log_sum_exp,
    );
}

/// [`forward`], split into tasks for this many threads.
pub(super) fn forward_for(
    threads: usize,
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    options: &Options,
    context: &mut [f32],
    context_strides: Strides,
    log_sum_exp: &mut [f32],
) {
    shape.check();
    options.mask.check(shape);
    let out = OutputPointers::new(shape, context, context_strides, log_sum_exp);
    let rows = shape.batch * shape.heads * shape.queries;
    if rows == 0 {
        return;
    }
    let heads = shape.batch * shape.heads;
    let step = queries_per_task(shape, threads);
    let tasks_per_head = shape.queries.div_ceil(step);
    let instructions = simd::instructions();
    let tile = TileSize::of(instructions);
    let is_packed = shape.queries > decode::DECODE_MAX_QUERIES;
    let is_copied = is_packed && !is_read_in_place(value, shape.keys, shape.value_width, tile);
    let sizes = buffer_sizes(shape, tile, is_packed, is_copied);
    let task = |index: usize| {
        let (head, part) = (index / tasks_per_head, index % tasks_per_head);
        let first = part * step;
        // Scratch is borrowed outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, sizes.iter().sum(), |scratch| {
            let kernel = ForwardTask {
                shape,
                query,
                key,
                value,
                options,
                batch: head / shape.heads,
                head: head % shape.heads,
                queries: first..shape.queries.min(first + step),
                out,
                scratch,
                is_packed,
                sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let tasks = heads * tasks_per_head;
    if rows * shape.keys * (shape.head_width + shape.value_width) < 1 << 16 {
        (0..tasks).for_each(task);
    } else {
        threads::parallel_for(tasks, task);
    }
}

/// Lengths of the packed keys, the packed values, the scores and the accumulator.
fn buffer_sizes(shape: &Shape, tile: TileSize, is_packed: bool, is_copied: bool) -> [usize; 4] {
    let padded_value_width = tile.padded(shape.value_width);
    [
        usize::from(is_packed) * shape.keys.next_multiple_of(tile.nr) * shape.head_width,
        usize::from(is_copied) * shape.keys * padded_value_width,
        QUERY_BLOCK * shape.score_stride(),
        QUERY_BLOCK * padded_value_width,
    ]
}

/// Queries per task. A head is split where there are fewer heads than threads, and where it has thousands of queries, so that
/// one delayed thread does not delay all.
fn queries_per_task(shape: &Shape, threads: usize) -> usize {
    /// Splitting further would not pay for packing the keys once more.
    const MAX_QUERIES: usize = 2048;
    let heads = shape.batch * shape.heads;
    let tasks_per_head = (2 * threads)
        .div_ceil(heads)
        .min(shape.queries.div_ceil(2 * QUERY_BLOCK))
        .max(shape.queries / MAX_QUERIES)
        .max(1);
    shape
        .queries
        .div_ceil(tasks_per_head)
        .next_multiple_of(QUERY_BLOCK)
}

/// Output buffers. Each task writes its own rows.
#[derive(Clone, Copy)]
struct OutputPointers {
    context: *mut f32,
    strides: Strides,
    log_sum_exp: *mut f32,
}

// SAFETY: each task writes only to the rows of its own queries.
unsafe impl Send for OutputPointers {}
// SAFETY: as above; the pointers themselves are only read.
unsafe impl Sync for OutputPointers {}

impl OutputPointers {
    /// Panics unless all rows are disjoint and lie inside the slices.
    fn new(shape: &Shape, context: &mut [f32], strides: Strides, log_sum_exp: &mut [f32]) -> Self {
        let [batch, heads, queries] = [shape.batch, shape.heads, shape.queries];
        let rows = batch * heads * queries;
        assert_eq!(
            log_sum_exp.len(),
            rows,
            "attention: log_sum_exp has {} values for {rows} rows",
            log_sum_exp.len()
        );
        strides.check_disjoint([batch, heads, queries], shape.value_width, context.len());
        Self {
            context: context.as_mut_ptr(),
            strides,
            log_sum_exp: log_sum_exp.as_mut_ptr(),
        }
    }
}

/// A range of queries of one head.
struct ForwardTask<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Heads<'a>,
    value: Heads<'a>,
    options: &'a Options<'a>,
    batch: usize,
    head: usize,
    queries: Range<usize>,
    out: OutputPointers,
    scratch: &'a mut [f32],
    /// Whether keys and values are packed, or read in place.
    is_packed: bool,
    /// See [`buffer_sizes`].
    sizes: [usize; 4],
}

impl WithSimd for ForwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Shape {
            keys,
            head_width,
            value_width,
            ..
        } = *self.shape;
        let [packed_keys, packed_values, scores, accumulator] =
            split_scratch(std::mem::take(&mut self.scratch), self.sizes);
        let key_value_head = self.shape.key_value_head(self.head);
        let mut values = View {
            start: packed_values.as_ptr(),
            row_stride: 0,
            column_stride: 1,
        };
        if self.is_packed {
            pack_columns(
                simd,
                self.key,
                self.batch,
                key_value_head,
                keys,
                head_width,
                packed_keys,
            );
            let at = [self.batch, key_value_head];
            values = padded_rows::<S>(self.value, at, keys, value_width, packed_values);
        }
        let padded_width = microkernel::tile_size::<S>().padded(value_width);
        let mut first = self.queries.start;
        while first < self.queries.end {
            let queries = self.block_from(first);
            first = queries.end;
            let visible =
                union_of_visible_keys(self.options, self.shape, self.batch, queries.clone());
            let mut block = Block {
                queries,
                visible,
                softmax: OnlineSoftmax::new(accumulator, padded_width),
            };
            self.attend(simd, &mut block, (packed_keys, values), scores);
            self.write_output(simd, &block);
        }
    }
}

/// A block of queries and its softmax state.
struct Block<'a> {
    queries: Range<usize>,
    /// The smallest range with all keys that the block sees.
    visible: Range<usize>,
    softmax: OnlineSoftmax<'a>,
}

impl ForwardTask<'_> {
    /// The block of queries that begins at `first`.
    fn block_from(&self, first: usize) -> Range<usize> {
        let end = block_end(self.options.mask.blocks, first).min(first + QUERY_BLOCK);
        first..self.queries.end.min(end)
    }

    /// Attends to all visible keys, tile by tile.
    #[inline(always)]
    fn attend<S: Simd>(
        &self,
        simd: S,
        block: &mut Block,
        operands: (&[f32], View),
        scores: &mut [f32],
    ) {
        // Packed keys are read in whole panels, others in whole vectors.
        let panel = match self.is_packed {
            true => microkernel::nr::<S>(),
            false => S::F32_LANES,
        };
        let (pattern, visible) = (self.options.mask.blocks, block.visible.clone());
        for run in KeyRuns::new(pattern, self.shape, self.head, block.queries.start) {
            let run = run.start.max(visible.start)..run.end.min(visible.end);
            // Tile boundaries depend on the keys alone, so that results do not depend on how queries are split into tasks.
            for first_key in (run.start / KEY_TILE * KEY_TILE..run.end).step_by(KEY_TILE) {
                if let Some(keys) = intersect_tile(&run, first_key, panel, self.shape.keys) {
                    self.attend_tile(simd, block, keys, run.clone(), operands, scores);
                }
            }
        }
    }

    /// Attends from a block of queries to the keys of a tile that are in a run.
    #[inline(always)]
    fn attend_tile<S: Simd>(
        &self,
        simd: S,
        block: &mut Block,
        keys: Range<usize>,
        run: Range<usize>,
        (packed_keys, values): (&[f32], View),
        scores: &mut [f32],
    ) {
        let Block {
            queries,
            softmax,
            visible,
        } = block;
        let (first_key, count, stride) = (keys.start, keys.len(), self.shape.score_stride());
        let key_ranges =
            KeyRanges::visible(self.options, self.shape, self.batch, queries, &keys, &run);
        let rows = queries.clone();
        self.compute_scores(simd, rows, keys.clone(), packed_keys, scores, &key_ranges);
        // Where a pattern leaves out the last keys, nothing is prefetched.
        let prefetch =
            (self.is_packed && keys.end >= visible.end).then(|| self.prefetch(queries.start));
        for row in 0..queries.len() {
            let at = [self.batch, self.head, queries.start + row];
            if let Some(prefetch) = &prefetch {
                prefetch.row(row);
            }
            let range = self
                .options
                .mask
                .visible_keys(self.shape, self.batch, at[2]);
            let range = range.start.max(run.start)..range.end.min(run.end);
            let span = VisibleSpan::new::<S>(range, first_key, count);
            let scores_row = &mut scores[row * stride..(row + 1) * stride];
            if span.is_empty() {
                scores_row[..count].fill(0.0);
                continue;
            }
            span.zero_outside(scores_row, count);
            let factor = scale_and_mask(scores_row, &span, self.options, self.shape, at, first_key);
            if !softmax.update(simd, row, scores_row, &span, factor) {
                scores_row[..count].fill(0.0);
                continue;
            }
            if self.options.dropout.is_some() {
                let row = self.shape.row_index(at[0], at[1], at[2]);
                let weights = &mut scores_row[span.from..span.to];
                let from = first_key + span.from;
                apply_dropout(simd, self.options, self.shape, row, from, weights);
            }
        }
        self.accumulate_values(simd, block, keys, values, scores, &key_ranges);
    }

    /// What to prefetch during the block of queries that begins at `first`.
    #[inline(always)]
    fn prefetch(&self, first: usize) -> Prefetch {
        let OutputPointers {
            context, strides, ..
        } = self.out;
        let at = [self.batch, self.head, first];
        Prefetch::new(
            RowPointers::new(context, strides, at, self.shape.value_width),
            [self.query, self.key, self.value],
            self.shape,
            [self.batch, self.head],
            first,
        )
    }

    /// The raw scores of a block of queries and a tile of keys.
    #[inline(always)]
    fn compute_scores<S: Simd>(
        &self,
        simd: S,
        block: Range<usize>,
        tile: Range<usize>,
        packed_keys: &[f32],
        scores: &mut [f32],
        key_ranges: &KeyRanges,
    ) {
        let width = self.shape.head_width;
        if !self.is_packed {
            let keys = self.kv_rows(self.key, width);
            for (query, scores_row) in block.zip(scores.chunks_exact_mut(self.shape.score_stride()))
            {
                let query = self.query.row(self.batch, self.head, query, width);
                decode::dots(simd, query, keys, tile.clone(), scores_row);
            }
            return;
        }
        let packed = PackedScores {
            shape: self.shape,
            query: self.query,
            batch: self.batch,
            head: self.head,
            queries: block,
            keys: tile,
            packed_keys,
            scores,
            key_ranges,
        };
        packed.run(simd);
    }

    /// Accumulates a tile of weighted values.
    #[inline(always)]
    fn accumulate_values<S: Simd>(
        &self,
        simd: S,
        block: &mut Block,
        tile: Range<usize>,
        values: View,
        weights: &[f32],
        key_ranges: &KeyRanges,
    ) {
        let (rows, softmax) = (block.queries.len(), &mut block.softmax);
        let (accumulator, padded_width) = (&mut *softmax.accumulator, softmax.padded_width);
        if !self.is_packed {
            let values = self.kv_rows(self.value, self.shape.value_width);
            // With at most `DECODE_MAX_QUERIES` rows there is one row group.
            let visible = key_ranges.at(0);
            for (weights, accumulator) in weights
                .chunks_exact(self.shape.score_stride())
                .zip(accumulator.chunks_exact_mut(padded_width))
                .take(rows)
            {
                decode::add_weighted(
                    simd,
                    &weights[visible.clone()],
                    values,
                    tile.start + visible.start,
                    accumulator,
                );
            }
            return;
        }
        let a = View {
            start: weights.as_ptr(),
            row_stride: self.shape.score_stride(),
            column_stride: 1,
        };
        // SAFETY: the weights hold `rows` rows of `tile.len()`, and the values of the tile are readable in whole microkernel tiles.
        unsafe {
            let product = AddProduct {
                rows,
                depth: tile.len(),
                a,
                b: values.skip_rows(tile.start),
                c: accumulator,
                padded_width,
                key_ranges,
            };
            product.run(simd);
        }
    }

    /// The rows of this head's keys or values.
    #[inline(always)]
    fn kv_rows<'a>(&self, heads: Heads<'a>, width: usize) -> KvRows<'a> {
        KvRows {
            heads,
            batch: self.batch,
            head: self.shape.key_value_head(self.head),
            width,
        }
    }

    /// Normalizes the accumulator into the context, and writes the log-sum-exp of each row.
    #[inline(always)]
    fn write_output<S: Simd>(&self, simd: S, block: &Block) {
        let OnlineSoftmax {
            row_max,
            row_sum,
            accumulator,
            padded_width,
        } = &block.softmax;
        let width = self.shape.value_width;
        for (row, query) in block.queries.clone().enumerate() {
            // A query that sees no key gets zeros.
            let (factor, log_sum_exp) = match row_sum[row] {
                0.0 => (0.0, f32::NEG_INFINITY),
                sum => (1.0 / sum, row_max[row] + sum.ln()),
            };
            // SAFETY: `OutputPointers::new` checked that all rows lie inside the slices, and no other task has this row.
            let to = unsafe {
                let index = self.shape.row_index(self.batch, self.head, query);
                *self.out.log_sum_exp.add(index) = log_sum_exp;
                let start = self.out.strides.at(self.batch, self.head, query);
                std::slice::from_raw_parts_mut(self.out.context.add(start), width)
            };
            let accumulator = &accumulator[row * padded_width..row * padded_width + width];
            scale_into(simd, accumulator, factor, to);
        }
    }
}

/// Applies dropout to a row of weights.
#[inline(always)]
fn apply_dropout<S: Simd>(
    simd: S,
    options: &Options,
    shape: &Shape,
    row: usize,
    from: usize,
    weights: &mut [f32],
) {
    let mut factors = [0f32; KEY_TILE];
    let factors = &mut factors[..weights.len()];
    if let Some(factors) = dropout_factors(simd, options, shape, row, from, factors) {
        for (weight, factor) in weights.iter_mut().zip(factors) {
            *weight *= factor;
        }
    }
}
