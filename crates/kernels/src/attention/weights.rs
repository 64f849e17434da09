//! Materialized attention weights, for inspection and ablation, and their backward pass.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::decode::{self, KvRows};
use super::key_ranges::KeyRanges;
use super::pattern::{KeyRuns, block_end};
use super::scores::{
    PackedScores, VisibleSpan, copy_row, pack_columns, scale_and_bias, union_of_visible_keys,
};
use super::{Bias, BiasLayout, Heads, KEY_TILE, Options, QUERY_BLOCK, Shape};
use crate::elementwise;
use crate::gemm::{Matrix, gemm, with_scratch};
use crate::microkernel::{self, Init, TileSize};
use crate::partition;
use crate::simd;
use crate::softmax::{softmax_backward, softmax_row};

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Queries per task: each task packs the keys.
const QUERIES_PER_TASK: usize = 2 * QUERY_BLOCK;

/// Writes the exact weights `[batch, heads, queries, keys]`, before dropout; fully masked rows are zeros.
///
/// # Panics
/// When a slice does not match the shape.
pub fn weights(shape: &Shape, query: Heads, key: Heads, options: &Options, out: &mut [f32]) {
    shape.check();
    options.mask.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    assert_eq!(
        out.len(),
        rows * shape.keys,
        "attention weights: a buffer of {} does not match {shape:?}",
        out.len()
    );
    if out.is_empty() {
        return;
    }
    let instructions = simd::instructions();
    let panel = TileSize::of(instructions).nr;
    let is_packed = shape.queries > decode::DECODE_MAX_QUERIES;
    let packed_len = usize::from(is_packed) * shape.keys.next_multiple_of(panel) * shape.head_width;
    let heads = out.chunks_mut(shape.queries * shape.keys).enumerate();
    let tasks = heads.flat_map(|(head, out)| {
        let tasks = out.chunks_mut(QUERIES_PER_TASK * shape.keys).enumerate();
        tasks.map(move |(part, out)| (head, part * QUERIES_PER_TASK, out))
    });
    partition::for_each(tasks.collect(), |(head, first, out)| {
        // Scratch is borrowed outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(
            &SCRATCH,
            packed_len + QUERY_BLOCK * shape.score_stride(),
            |scratch| {
                let (packed_keys, scores) = scratch.split_at_mut(packed_len);
                let kernel = WeightsTask {
                    shape,
                    query,
                    key,
                    options,
                    batch: head / shape.heads,
                    head: head % shape.heads,
                    first,
                    out,
                    packed_keys,
                    scores,
                    is_packed,
                };
                simd::run(instructions, kernel);
            },
        );
    });
}

/// The weights of a range of queries of one head.
struct WeightsTask<'a> {
    shape: &'a Shape,
    query: Heads<'a>,
    key: Heads<'a>,
    options: &'a Options<'a>,
    batch: usize,
    head: usize,
    /// The first query.
    first: usize,
    out: &'a mut [f32],
    packed_keys: &'a mut [f32],
    scores: &'a mut [f32],
    /// Whether keys are packed, or read in place.
    is_packed: bool,
}

impl WithSimd for WeightsTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let keys = self.shape.keys;
        if self.is_packed {
            let (key_value_head, width) =
                (self.shape.key_value_head(self.head), self.shape.head_width);
            let to = &mut *self.packed_keys;
            pack_columns(simd, self.key, self.batch, key_value_head, keys, width, to);
        }
        let out = std::mem::take(&mut self.out);
        let end = self.first + out.len() / keys;
        // Masked scores stay minus infinity.
        out.fill(f32::NEG_INFINITY);
        let blocks = self.options.mask.blocks;
        let mut first = self.first;
        while first < end {
            let block = first..end.min(block_end(blocks, first).min(first + QUERY_BLOCK));
            let rows = &mut out[(first - self.first) * keys..(block.end - self.first) * keys];
            first = block.end;
            let visible =
                union_of_visible_keys(self.options, self.shape, self.batch, block.clone());
            for run in KeyRuns::new(blocks, self.shape, self.head, block.start) {
                let run = run.start.max(visible.start)..run.end.min(visible.end);
                if !run.is_empty() {
                    self.score_run(simd, block.clone(), run, rows);
                }
            }
        }
        for row in out.chunks_exact_mut(keys) {
            softmax_row(simd, row);
        }
    }
}

impl WeightsTask<'_> {
    /// Writes the scaled scores of a block of queries and a run of keys.
    #[inline(always)]
    fn score_run<S: Simd>(
        &mut self,
        simd: S,
        block: Range<usize>,
        run: Range<usize>,
        rows: &mut [f32],
    ) {
        // Packed keys are read in whole panels, others in whole vectors.
        let panel = match self.is_packed {
            true => microkernel::nr::<S>(),
            false => S::F32_LANES,
        };
        for tile in (run.start / panel * panel..run.end).step_by(KEY_TILE) {
            let count = KEY_TILE.min(run.end - tile).next_multiple_of(panel);
            let count = count.min(self.shape.keys - tile);
            self.compute_scores(simd, block.clone(), tile..tile + count, &run);
            for (row, out) in rows.chunks_exact_mut(self.shape.keys).enumerate() {
                let at = [self.batch, self.head, block.start + row];
                let range = self
                    .options
                    .mask
                    .visible_keys(self.shape, self.batch, at[2]);
                let range = range.start.max(run.start)..range.end.min(run.end);
                let span = VisibleSpan::new::<S>(range, tile, count);
                if span.is_empty() {
                    continue;
                }
                let start = row * self.shape.score_stride();
                let scores = &mut self.scores[start + span.from..start + span.to];
                scale_and_bias(scores, self.options, self.shape, at, tile + span.from);
                copy_row::<S>(scores, &mut out[tile + span.from..tile + span.to]);
            }
        }
    }

    /// The raw scores of a block of queries and a tile of keys.
    #[inline(always)]
    fn compute_scores<S: Simd>(
        &mut self,
        simd: S,
        block: Range<usize>,
        tile: Range<usize>,
        run: &Range<usize>,
    ) {
        let (batch, head, width) = (self.batch, self.head, self.shape.head_width);
        if self.is_packed {
            let key_ranges =
                KeyRanges::visible(self.options, self.shape, batch, &block, &tile, run);
            let packed = PackedScores {
                shape: self.shape,
                query: self.query,
                batch,
                head,
                queries: block,
                keys: tile,
                packed_keys: &*self.packed_keys,
                scores: &mut *self.scores,
                key_ranges: &key_ranges,
            };
            packed.run(simd);
            return;
        }
        let keys = KvRows {
            heads: self.key,
            batch,
            head: self.shape.key_value_head(head),
            width,
        };
        for (query, scores_row) in
            block.zip(self.scores.chunks_exact_mut(self.shape.score_stride()))
        {
            let query = self.query.row(batch, head, query, width);
            decode::dots(simd, query, keys, tile.clone(), scores_row);
        }
    }
}

/// Where the gradients of [`weights`] are written.
#[derive(Debug)]
pub struct WeightGradients<'a> {
    /// The gradient of the scores, `[batch, heads, queries, keys]`.
    pub scores: &'a mut [f32],
    /// The gradient of the queries, `[batch, heads, queries, head_width]`.
    pub query: &'a mut [f32],
    /// The gradient of the keys, `[batch, key_value_heads, keys, head_width]`.
    pub key: &'a mut [f32],
    /// The gradient of the bias, if needed, as in [`super::Gradients`].
    pub bias: Option<&'a mut [f32]>,
}

/// The backward pass of [`weights`], from the weights and their gradients; queries and keys are contiguous `[batch, heads,
/// length, head_width]`.
///
/// # Panics
/// When a slice does not match the shape.
pub fn weights_backward(
    shape: &Shape,
    [query, key]: [&[f32]; 2],
    [weights, weight_gradients]: [&[f32]; 2],
    scale: f32,
    bias: Option<&Bias>,
    gradients: WeightGradients,
) {
    shape.check();
    let Shape {
        queries,
        keys,
        head_width: width,
        ..
    } = *shape;
    let score_gradients = gradients.scores;
    softmax_backward(weights, weight_gradients, keys, score_gradients);
    if let Some(out) = gradients.bias {
        add_to_bias(
            shape,
            bias.map_or(BiasLayout::PerPair, |bias| bias.layout),
            score_gradients,
            out,
        );
    }
    let group = shape.heads / shape.key_value_heads;
    let (score_count, rows) = (queries * keys, queries * width);
    for head in 0..shape.batch * shape.heads {
        // The heads of all sequences are contiguous, and so are the groups that share keys.
        let key_range = head / group * keys * width..(head / group + 1) * keys * width;
        let score_gradients = Matrix::new(
            &score_gradients[head * score_count..(head + 1) * score_count],
            queries,
            keys,
        );
        let query = Matrix::new(&query[head * rows..(head + 1) * rows], queries, width);
        let out = &mut gradients.query[head * rows..(head + 1) * rows];
        let key = Matrix::new(&key[key_range.clone()], keys, width);
        gemm(score_gradients, key, out, Init::Zero, |_, _, _| ());
        let init = if head % group == 0 {
            Init::Zero
        } else {
            Init::Accumulate
        };
        let out = &mut gradients.key[key_range];
        gemm(score_gradients.transposed(), query, out, init, |_, _, _| ());
    }
    elementwise::scale_assign(gradients.query, scale);
    elementwise::scale_assign(gradients.key, scale);
}

/// Sums the score gradients into the gradient of each head's bias.
fn add_to_bias(shape: &Shape, layout: BiasLayout, score_gradients: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    let head_len = layout.head_len(shape);
    for (row, score_gradients) in score_gradients.chunks_exact(shape.keys.max(1)).enumerate() {
        let (head, query) = (row / shape.queries, row % shape.queries);
        let start = head * head_len + layout.row_start(shape, query);
        let out = &mut out[start..start + score_gradients.len()];
        for (sum, gradient) in out.iter_mut().zip(score_gradients) {
            *sum += gradient;
        }
    }
}
