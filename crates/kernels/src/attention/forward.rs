//! The forward pass: a running softmax over tiles of keys. Milakov and Gimelshein 2018.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::ahead::{Ahead, Places};
use super::few::{self, Lines};
use super::pattern::{Runs, end_of_block, in_tile};
use super::reach::Reach;
use super::running::Running;
use super::scores::{
    Seen, add_product, dropout_factors, in_place, pack_columns, prepare_row, score_packed, union,
    whole_rows,
};
use super::{Heads, KEYS, Options, QUERIES, Shape, Strides};
use crate::elementwise::scale_into;
use crate::gemm::with_scratch;
use crate::micro::{self, TileSize, View};
use crate::simd;
use crate::threads;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Attention; writes the context and, per row of `[batch, heads, queries]`, the logarithm of the sum of exponentials.
///
/// # Panics
/// When a slice is too short for the shape.
pub fn forward(
    shape: &Shape,
    operands: [Heads; 3],
    options: &Options,
    context: &mut [f32],
    context_strides: Strides,
    log_sums: &mut [f32],
) {
    let threads = threads::count();
    forward_for(
        threads,
        shape,
        operands,
        options,
        context,
        context_strides,
        log_sums,
    );
}

/// [`forward`], cut into tasks for so many threads.
pub(super) fn forward_for(
    threads: usize,
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    options: &Options,
    context: &mut [f32],
    context_strides: Strides,
    log_sums: &mut [f32],
) {
    shape.check();
    options.mask.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    assert_eq!(
        log_sums.len(),
        rows,
        "attention: {} log-sums for {rows} rows",
        log_sums.len()
    );
    if rows == 0 {
        return;
    }
    let places = [shape.batch, shape.heads, shape.queries];
    context_strides.check_apart(places, shape.value_width, context.len());
    let out = Output {
        context: context.as_mut_ptr(),
        strides: context_strides,
        log_sums: log_sums.as_mut_ptr(),
    };
    let heads = shape.batch * shape.heads;
    let step = queries_of_task(shape, threads);
    let pieces = shape.queries.div_ceil(step);
    let instructions = simd::instructions();
    let tile = TileSize::of(instructions);
    let padded_value = tile.padded(shape.value_width);
    let packed = shape.queries > few::FEW;
    let copied = packed && !in_place(value, shape.keys, shape.value_width, tile);
    let sizes = [
        usize::from(packed) * shape.keys.next_multiple_of(tile.columns) * shape.head_width,
        usize::from(copied) * shape.keys * padded_value,
        QUERIES * shape.line(),
        QUERIES * padded_value,
    ];
    let task = |index: usize| {
        let (head, piece) = (index / pieces, index % pieces);
        let first = piece * step;
        // The buffers are lent outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, sizes.iter().sum(), |scratch| {
            let kernel = Head {
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
                packed,
                sizes,
            };
            simd::run(instructions, kernel);
        });
    };
    let tasks = heads * pieces;
    if rows * shape.keys * (shape.head_width + shape.value_width) < 1 << 16 {
        (0..tasks).for_each(task);
    } else {
        threads::each(tasks, task);
    }
}

/// How many queries of a head a task has: with fewer heads than threads, they are shared out too, in blocks; and where there are
/// thousands, so that a thread that is held up does not hold up all.
fn queries_of_task(shape: &Shape, threads: usize) -> usize {
    /// For fewer, packing the keys once more is not worth it.
    const MANY: usize = 2048;
    let heads = shape.batch * shape.heads;
    let pieces = (2 * threads)
        .div_ceil(heads)
        .min(shape.queries.div_ceil(2 * QUERIES))
        .max(shape.queries / MANY)
        .max(1);
    shape.queries.div_ceil(pieces).next_multiple_of(QUERIES)
}

/// Where results go. Each task writes to rows of its own.
#[derive(Clone, Copy)]
struct Output {
    context: *mut f32,
    strides: Strides,
    log_sums: *mut f32,
}

// SAFETY: each task writes only to the rows of its own queries.
unsafe impl Send for Output {}
// SAFETY: as above; the pointers themselves are only read.
unsafe impl Sync for Output {}

/// Some queries of one head.
struct Head<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Heads<'a>,
    value: Heads<'a>,
    options: &'a Options<'a>,
    batch: usize,
    head: usize,
    queries: Range<usize>,
    out: Output,
    scratch: &'a mut [f32],
    /// Whether keys and values are packed, or read where they lie.
    packed: bool,
    /// Of packed keys, packed values, scores and sums.
    sizes: [usize; 4],
}

impl WithSimd for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Shape {
            keys,
            head_width,
            value_width,
            ..
        } = *self.shape;
        let (packed_keys, rest) = std::mem::take(&mut self.scratch).split_at_mut(self.sizes[0]);
        let (packed_values, rest) = rest.split_at_mut(self.sizes[1]);
        let (scores, sums) = rest.split_at_mut(self.sizes[2]);
        let shared = self.shape.key_value_head(self.head);
        let mut values = View {
            start: packed_values.as_ptr(),
            row_stride: 0,
            column_stride: 1,
        };
        if self.packed {
            pack_columns(
                simd,
                self.key,
                self.batch,
                shared,
                keys,
                head_width,
                packed_keys,
            );
            let at = [self.batch, shared];
            values = whole_rows::<S>(self.value, at, keys, value_width, packed_values);
        }
        let padded = micro::size::<S>().padded(value_width);
        let mut first = self.queries.start;
        while first < self.queries.end {
            let queries = self.block_from(first);
            first = queries.end;
            let seen = union(self.options, self.shape, self.batch, queries.clone());
            let mut block = Block {
                queries,
                seen,
                running: Running::new(sums, padded),
            };
            self.attend(simd, &mut block, (packed_keys, values), scores);
            self.finish(simd, &block);
        }
    }
}

/// A block of queries on its way through the keys.
struct Block<'a> {
    queries: Range<usize>,
    /// The keys that its queries see between them.
    seen: Range<usize>,
    running: Running<'a>,
}

impl Head<'_> {
    /// The queries of a block from here on.
    fn block_from(&self, first: usize) -> Range<usize> {
        let end = end_of_block(self.options.mask.blocks, first).min(first + QUERIES);
        first..self.queries.end.min(end)
    }

    /// A block meets the runs of keys that it sees, tile by tile.
    #[inline(always)]
    fn attend<S: Simd>(
        &self,
        simd: S,
        block: &mut Block,
        packed: (&[f32], View),
        scores: &mut [f32],
    ) {
        // Packed keys are met in whole panels, others in whole vectors.
        let panel = match self.packed {
            true => micro::columns::<S>(),
            false => S::F32_LANES,
        };
        let (pattern, seen) = (self.options.mask.blocks, block.seen.clone());
        for run in Runs::new(pattern, self.shape, self.head, block.queries.start) {
            let run = run.start.max(seen.start)..run.end.min(seen.end);
            // Where tiles begin depends on nothing but the keys, so that sums do not depend on how queries are shared out.
            for tile in (run.start / KEYS * KEYS..run.end).step_by(KEYS) {
                if let Some(keys) = in_tile(&run, tile, panel, self.shape.keys) {
                    self.meet(simd, block, keys, run.clone(), packed, scores);
                }
            }
        }
    }

    /// A block of queries with a tile of keys, of which those of a run are seen.
    #[inline(always)]
    fn meet<S: Simd>(
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
            running,
            seen,
        } = block;
        let (tile, count, stride) = (keys.start, keys.len(), self.shape.line());
        let reach = Reach::of_queries(self.options, self.shape, self.batch, queries, &keys, &run);
        let rows = queries.clone();
        self.score(simd, rows, keys.clone(), packed_keys, scores, &reach);
        // Where a pattern leaves out the last keys, nothing is asked for.
        let ahead = (self.packed && keys.end >= seen.end).then(|| self.ahead(queries.start));
        for row in 0..queries.len() {
            let at = [self.batch, self.head, queries.start + row];
            if let Some(ahead) = &ahead {
                ahead.fetch(row);
            }
            let range = self.options.mask.range(self.shape, self.batch, at[2]);
            let range = range.start.max(run.start)..range.end.min(run.end);
            let seen = Seen::new::<S>(range, tile, count);
            let line = &mut scores[row * stride..(row + 1) * stride];
            if seen.is_empty() {
                line[..count].fill(0.0);
                continue;
            }
            seen.clear_rest(line, count);
            let factor = prepare_row(line, &seen, self.options, self.shape, at, tile);
            if !running.add(simd, row, line, &seen, factor) {
                line[..count].fill(0.0);
                continue;
            }
            if self.options.dropout.is_some() {
                let number = self.shape.row(at[0], at[1], at[2]);
                let line = &mut line[seen.from..seen.to];
                let from = tile + seen.from;
                drop_weights(simd, self.options, self.shape, number, from, line);
            }
        }
        let rows = queries.len();
        self.weigh(simd, rows, keys, values, &*scores, running, &reach);
    }

    /// What is needed after the queries from this on.
    #[inline(always)]
    fn ahead(&self, first: usize) -> Ahead {
        let Output {
            context, strides, ..
        } = self.out;
        let at = [self.batch, self.head, first];
        Ahead::new(
            Places::new(context, strides, at, self.shape.value_width),
            [self.query, self.key, self.value],
            self.shape,
            [self.batch, self.head],
            first,
        )
    }

    /// The scores of a block of queries with a tile of keys.
    #[inline(always)]
    fn score<S: Simd>(
        &self,
        simd: S,
        block: Range<usize>,
        tile: Range<usize>,
        packed_keys: &[f32],
        scores: &mut [f32],
        reach: &Reach,
    ) {
        let width = self.shape.head_width;
        if !self.packed {
            let keys = self.lines(self.key, width);
            for (query, line) in block.zip(scores.chunks_exact_mut(self.shape.line())) {
                let query = self.query.row(self.batch, self.head, query, width);
                few::dots(simd, query, keys, tile.clone(), line);
            }
            return;
        }
        let at = [self.batch, self.head];
        score_packed(
            simd,
            self.shape,
            self.query,
            at,
            block,
            tile,
            packed_keys,
            scores,
            reach,
        );
    }

    /// Adds a tile of values to the sums, weighed.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn weigh<S: Simd>(
        &self,
        simd: S,
        rows: usize,
        tile: Range<usize>,
        values: View,
        weights: &[f32],
        running: &mut Running,
        reach: &Reach,
    ) {
        let (sums, padded) = (&mut *running.sums, running.padded);
        if !self.packed {
            let values = self.lines(self.value, self.shape.value_width);
            // So few rows are one group.
            let seen = reach.at(0);
            for (line, sums) in weights
                .chunks_exact(self.shape.line())
                .zip(sums.chunks_exact_mut(padded))
                .take(rows)
            {
                few::add_weighted(
                    simd,
                    &line[seen.clone()],
                    values,
                    tile.start + seen.start,
                    sums,
                );
            }
            return;
        }
        let a = View {
            start: weights.as_ptr(),
            row_stride: self.shape.line(),
            column_stride: 1,
        };
        // SAFETY: the weights hold `rows` rows of as many numbers as the tile has keys, whose values are readable in whole
        // tiles.
        unsafe {
            let values = values.after_rows(tile.start);
            add_product(simd, rows, tile.len(), a, values, sums, padded, reach)
        };
    }

    /// The rows of this head in keys or values.
    #[inline(always)]
    fn lines<'a>(&self, heads: Heads<'a>, width: usize) -> Lines<'a> {
        Lines {
            heads,
            batch: self.batch,
            head: self.shape.key_value_head(self.head),
            width,
        }
    }

    #[inline(always)]
    fn finish<S: Simd>(&self, simd: S, block: &Block) {
        let Running {
            largest,
            totals,
            sums,
            padded,
        } = &block.running;
        let width = self.shape.value_width;
        for (row, query) in block.queries.clone().enumerate() {
            // A query that saw nothing has no sum to divide by, and gets zeros.
            let (factor, log_sum) = match totals[row] {
                0.0 => (0.0, f32::NEG_INFINITY),
                total => (1.0 / total, largest[row] + total.ln()),
            };
            // SAFETY: `forward` checked that the last row lies inside the slices, and no other task has this row.
            let to = unsafe {
                let number = self.shape.row(self.batch, self.head, query);
                *self.out.log_sums.add(number) = log_sum;
                let start = self.out.strides.at(self.batch, self.head, query);
                std::slice::from_raw_parts_mut(self.out.context.add(start), width)
            };
            let sums = &sums[row * padded..row * padded + width];
            scale_into(simd, sums, factor, to);
        }
    }
}

/// Multiplies weights with what dropout leaves of them.
#[inline(always)]
fn drop_weights<S: Simd>(
    simd: S,
    options: &Options,
    shape: &Shape,
    number: usize,
    from: usize,
    line: &mut [f32],
) {
    let mut factors = [0f32; KEYS];
    let factors = &mut factors[..line.len()];
    if let Some(factors) = dropout_factors(simd, options, shape, number, from, factors) {
        for (weight, factor) in line.iter_mut().zip(factors) {
            *weight *= factor;
        }
    }
}
