//! The attention weights themselves, for those who want to look at them or to change them, and their backward pass.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::few::{self, Lines};
use super::pattern::{Runs, end_of_block};
use super::reach::Reach;
use super::scores::{Seen, copy_row, pack_columns, scale_row, score_packed, union};
use super::{Bias, BiasOf, Heads, KEYS, Options, QUERIES, Shape};
use crate::elementwise;
use crate::gemm::{Matrix, gemm, with_scratch};
use crate::micro::{self, Onto, TileSize};
use crate::parts;
use crate::simd;
use crate::softmax::{softmax_backward, softmax_row};

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Queries that one task takes: each task packs the keys.
const STEP: usize = 2 * QUERIES;

/// Writes the exact weights `[batch, heads, queries, keys]`, before dropout; rows that saw nothing are zeros.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn weights(shape: &Shape, query: Heads, key: Heads, options: &Options, out: &mut [f32]) {
    shape.check();
    options.mask.check(shape);
    let rows = shape.batch * shape.heads * shape.queries;
    assert_eq!(
        out.len(),
        rows * shape.keys,
        "attention weights: {} numbers do not fit {shape:?}",
        out.len()
    );
    if out.is_empty() {
        return;
    }
    let instructions = simd::instructions();
    let panel = TileSize::of(instructions).columns;
    let is_packed = shape.queries > few::FEW;
    let packed = usize::from(is_packed) * shape.keys.next_multiple_of(panel) * shape.head_width;
    let heads = out.chunks_mut(shape.queries * shape.keys).enumerate();
    let pieces = heads.flat_map(|(head, out)| {
        let pieces = out.chunks_mut(STEP * shape.keys).enumerate();
        pieces.map(move |(piece, out)| (head, piece * STEP, out))
    });
    parts::each(pieces.collect(), |(head, first, out)| {
        // The buffers are lent outside the kernel: a closure inside it would be compiled without vector instructions.
        with_scratch(&SCRATCH, packed + QUERIES * shape.line(), |scratch| {
            let (packed_keys, scores) = scratch.split_at_mut(packed);
            let kernel = Piece {
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
        });
    });
}

/// The weights of some queries of one head.
struct Piece<'a> {
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
    /// Whether keys are packed, or read where they lie.
    is_packed: bool,
}

impl WithSimd for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let keys = self.shape.keys;
        if self.is_packed {
            let (shared, width) = (self.shape.key_value_head(self.head), self.shape.head_width);
            let to = &mut *self.packed_keys;
            pack_columns(simd, self.key, self.batch, shared, keys, width, to);
        }
        let out = std::mem::take(&mut self.out);
        let end = self.first + out.len() / keys;
        // What is not seen stays minus infinity.
        out.fill(f32::NEG_INFINITY);
        let blocks = self.options.mask.blocks;
        let mut first = self.first;
        while first < end {
            let block = first..end.min(end_of_block(blocks, first).min(first + QUERIES));
            let lines = &mut out[(first - self.first) * keys..(block.end - self.first) * keys];
            first = block.end;
            let seen = union(self.options, self.shape, self.batch, block.clone());
            for run in Runs::new(blocks, self.shape, self.head, block.start) {
                let run = run.start.max(seen.start)..run.end.min(seen.end);
                if !run.is_empty() {
                    self.run(simd, block.clone(), run, lines);
                }
            }
        }
        for row in out.chunks_exact_mut(keys) {
            softmax_row(simd, row);
        }
    }
}

impl Piece<'_> {
    /// Writes the scores of a block of queries with a run of keys.
    #[inline(always)]
    fn run<S: Simd>(&mut self, simd: S, block: Range<usize>, run: Range<usize>, lines: &mut [f32]) {
        // Packed keys are met in whole panels, others in whole vectors.
        let panel = match self.is_packed {
            true => micro::columns::<S>(),
            false => S::F32_LANES,
        };
        for tile in (run.start / panel * panel..run.end).step_by(KEYS) {
            let count = KEYS.min(run.end - tile).next_multiple_of(panel);
            let count = count.min(self.shape.keys - tile);
            self.score(simd, block.clone(), tile..tile + count, &run);
            for (row, out) in lines.chunks_exact_mut(self.shape.keys).enumerate() {
                let at = [self.batch, self.head, block.start + row];
                let range = self.options.mask.range(self.shape, self.batch, at[2]);
                let range = range.start.max(run.start)..range.end.min(run.end);
                let seen = Seen::new::<S>(range, tile, count);
                if seen.is_empty() {
                    continue;
                }
                let start = row * self.shape.line();
                let line = &mut self.scores[start + seen.from..start + seen.to];
                scale_row(line, self.options, self.shape, at, tile + seen.from);
                copy_row::<S>(line, &mut out[tile + seen.from..tile + seen.to]);
            }
        }
    }

    /// The raw scores of a block of queries with the keys of a run in a tile.
    #[inline(always)]
    fn score<S: Simd>(
        &mut self,
        simd: S,
        block: Range<usize>,
        tile: Range<usize>,
        run: &Range<usize>,
    ) {
        let (batch, head, width) = (self.batch, self.head, self.shape.head_width);
        if self.is_packed {
            let (packed, scores) = (&*self.packed_keys, &mut *self.scores);
            let at = [batch, head];
            let reach = Reach::of_queries(self.options, self.shape, batch, &block, &tile, run);
            score_packed(
                simd, self.shape, self.query, at, block, tile, packed, scores, &reach,
            );
            return;
        }
        let keys = Lines {
            heads: self.key,
            batch,
            head: self.shape.key_value_head(head),
            width,
        };
        for (query, line) in block.zip(self.scores.chunks_exact_mut(self.shape.line())) {
            let query = self.query.row(batch, head, query, width);
            few::dots(simd, query, keys, tile.clone(), line);
        }
    }
}

/// Where gradients of [`weights`] go; every number is written.
#[derive(Debug)]
pub struct WeightGradients<'a> {
    /// Of the scores, `[batch, heads, queries, keys]`.
    pub scores: &'a mut [f32],
    /// Of the queries, `[batch, heads, queries, head_width]`.
    pub query: &'a mut [f32],
    /// Of the keys, `[batch, key_value_heads, keys, head_width]`.
    pub key: &'a mut [f32],
    /// Of the bias, if asked for, as in [`super::Gradients`].
    pub bias: Option<&'a mut [f32]>,
}

/// Gradients of [`weights`], given their own and the gradient `upstream`; queries and keys are `[batch, heads, length,
/// head_width]` without gaps.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn weights_backward(
    shape: &Shape,
    [query, key]: [&[f32]; 2],
    [weights, upstream]: [&[f32]; 2],
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
    let slopes = gradients.scores;
    softmax_backward(weights, upstream, keys, slopes);
    if let Some(out) = gradients.bias {
        add_to_bias(
            shape,
            bias.map_or(BiasOf::Pairs, |bias| bias.of),
            slopes,
            out,
        );
    }
    let group = shape.heads / shape.key_value_heads;
    let (matrix, rows) = (queries * keys, queries * width);
    for head in 0..shape.batch * shape.heads {
        // The sequences' heads follow each other, and so do the groups that share keys.
        let shared = head / group * keys * width..(head / group + 1) * keys * width;
        let slopes = Matrix::new(&slopes[head * matrix..(head + 1) * matrix], queries, keys);
        let query = Matrix::new(&query[head * rows..(head + 1) * rows], queries, width);
        let out = &mut gradients.query[head * rows..(head + 1) * rows];
        let key = Matrix::new(&key[shared.clone()], keys, width);
        gemm(slopes, key, out, Onto::Replace, |_, _, _| ());
        let onto = if head % group == 0 {
            Onto::Replace
        } else {
            Onto::Add
        };
        let out = &mut gradients.key[shared];
        gemm(slopes.transposed(), query, out, onto, |_, _, _| ());
    }
    elementwise::scale_assign(gradients.query, scale);
    elementwise::scale_assign(gradients.key, scale);
}

/// Adds the slopes of scores up to those of the bias of each head.
fn add_to_bias(shape: &Shape, of: BiasOf, slopes: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    let size = of.size(shape);
    for (row, slopes) in slopes.chunks_exact(shape.keys.max(1)).enumerate() {
        let (head, query) = (row / shape.queries, row % shape.queries);
        let start = head * size + of.start(shape, query);
        let out = &mut out[start..start + slopes.len()];
        for (sum, slope) in out.iter_mut().zip(slopes) {
            *sum += slope;
        }
    }
}
