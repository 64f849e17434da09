//! Maps of a few rows: the weight is read once, at full bandwidth, and nothing is packed.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{Rows, Shape};
use crate::gemm::Matrix;
use crate::simd::{self, Instructions};
use crate::{elementwise, parts, threads};

/// Up to this many rows, packing does not pay.
pub(super) const FEW_ROWS: usize = 4;

/// `y = x · weightᵀ`, where the numbers of a row of the weight follow each other, or those of a column.
pub(super) fn few_rows(
    shape: Shape,
    x: &[f32],
    weight: Matrix,
    y: &mut [f32],
    instructions: Instructions,
) {
    let Shape {
        rows,
        input,
        output,
    } = shape;
    if rows == 0 || output == 0 || input == 0 {
        y.fill(0.0);
    } else if weight.row(0).is_some() {
        let target = Rows::of(y, output);
        by_rows(threads::count(), shape, x, weight, target, instructions);
    } else {
        by_columns(shape, x, weight.transposed(), y, instructions);
    }
}

/// Pieces of a thread's rows: enough that nobody waits long for the last.
const PIECES: usize = 8;

/// Each thread has rows of the weight that follow each other and, where there are registers for it, goes through them in several
/// places at a time. A piece is a part of the way in all places, so that the next one goes on where it ended.
fn by_rows(
    threads: usize,
    shape: Shape,
    x: &[f32],
    weight: Matrix,
    target: Rows,
    instructions: Instructions,
) {
    let least = (threads::GRAIN / shape.input).max(1);
    let shares = threads.min(shape.output.div_ceil(least));
    threads::each_of(shares, PIECES, |share, piece| {
        let kernel = Dots {
            x,
            weight,
            share: threads::share(shape.output, share, shares),
            piece,
            target,
        };
        simd::run(instructions, kernel);
    });
}

/// Parts that columns are cut into, however many threads there are: sums of other parts would be other sums.
const PARTS: usize = 16;

/// Each part has sums of its own, which are then added up: the columns are read from end to end.
fn by_columns(shape: Shape, x: &[f32], columns: Matrix, y: &mut [f32], instructions: Instructions) {
    let least = threads::GRAIN / shape.output;
    let step = shape.input.div_ceil(PARTS).max(least);
    let starts: Vec<usize> = (0..shape.input).step_by(step).collect();
    let sums = parts::map(starts, |first| {
        let mut sums = vec![0.0; y.len()];
        let kernel = Multiples {
            x,
            columns,
            inputs: first..shape.input.min(first + step),
            sums: &mut sums,
        };
        simd::run(instructions, kernel);
        sums
    });
    y.fill(0.0);
    for sums in sums {
        elementwise::add_assign(y, &sums);
    }
}

/// Some rows of the weight meet every row of `x`.
struct Dots<'a> {
    x: &'a [f32],
    weight: Matrix<'a>,
    /// The rows of a thread.
    share: Range<usize>,
    /// Which piece of them.
    piece: usize,
    target: Rows,
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Rows far apart at a time: memory gives more when it is asked in several places. It takes registers for the sums.
        match S::REGISTER_COUNT {
            0..32 => self.in_places::<S, 1>(simd),
            _ => self.in_places::<S, STREAMS>(simd),
        }
    }
}

impl Dots<'_> {
    /// The piece's part of the way in each of `N` places of the thread's rows; with the first, the rows that are left over.
    #[inline(always)]
    fn in_places<S: Simd, const N: usize>(&self, simd: S) {
        let Range { start, end } = self.share;
        let each = (end - start) / N;
        for step in threads::share(each, self.piece, PIECES) {
            self.meet::<S, N>(simd, std::array::from_fn(|i| start + i * each + step));
        }
        if self.piece == 0 {
            for row in start + N * each..end {
                self.meet::<S, 1>(simd, [row]);
            }
        }
    }

    /// Some rows of the weight with every row of `x`.
    #[inline(always)]
    fn meet<S: Simd, const N: usize>(&self, simd: S, outputs: [usize; N]) {
        let [_, input] = self.weight.sizes();
        let mut weights: [&[f32]; N] = [&[]; N];
        for (weight, output) in weights.iter_mut().zip(outputs) {
            *weight = self.weight.row(output).expect("chosen for its rows");
        }
        for (row, x) in self.x.chunks_exact(input).enumerate() {
            // The first row fetches for all.
            let results = match row {
                0 => dots::<S, N, true>(simd, x, weights),
                _ => dots::<S, N, false>(simd, x, weights),
            };
            for (result, output) in results.into_iter().zip(outputs) {
                // SAFETY: this task alone writes to these outputs.
                let out = unsafe { self.target.piece(row, output, 1) };
                out[0] = result;
            }
        }
    }
}

/// Each column of the weight, times the number of `x` that it meets, is added to the results.
struct Multiples<'a> {
    x: &'a [f32],
    /// `[input, output]`
    columns: Matrix<'a>,
    inputs: Range<usize>,
    /// `[rows, output]`
    sums: &'a mut [f32],
}

/// Columns that are added at a time: the results are read and written once for all of them.
const TOGETHER: usize = 4;

impl WithSimd for Multiples<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let [input, output] = self.columns.sizes();
        let whole = self.inputs.start + self.inputs.len() / TOGETHER * TOGETHER;
        let column = |index| self.columns.row(index).expect("chosen for its columns");
        for index in (self.inputs.start..whole).step_by(TOGETHER) {
            let columns: [&[f32]; TOGETHER] = std::array::from_fn(|i| column(index + i));
            let rows = self.x.chunks_exact(input);
            for (x, sums) in rows.zip(self.sums.chunks_exact_mut(output)) {
                let factors = std::array::from_fn(|i| x[index + i]);
                add_multiples(simd, factors, columns, sums);
            }
        }
        for index in whole..self.inputs.end {
            let rows = self.x.chunks_exact(input);
            for (x, sums) in rows.zip(self.sums.chunks_exact_mut(output)) {
                add_multiples(simd, [x[index]], [column(index)], sums);
            }
        }
    }
}

/// Adds several slices, each times its factor.
#[inline(always)]
fn add_multiples<S: Simd, const N: usize>(
    simd: S,
    factors: [f32; N],
    slices: [&[f32]; N],
    sums: &mut [f32],
) {
    let (vectors, rest) = S::as_mut_simd_f32s(sums);
    let mut wide: [&[S::f32s]; N] = [&[]; N];
    let mut spread = [simd.splat_f32s(0.0); N];
    for i in 0..N {
        // All of one length, so that the compiler checks no index.
        wide[i] = &S::as_simd_f32s(slices[i]).0[..vectors.len()];
        spread[i] = simd.splat_f32s(factors[i]);
    }
    let done = vectors.len() * S::F32_LANES;
    for (place, sum) in vectors.iter_mut().enumerate() {
        let mut total = *sum;
        for i in 0..N {
            total = simd.mul_add_f32s(spread[i], wide[i][place], total);
        }
        *sum = total;
    }
    for (place, sum) in rest.iter_mut().enumerate() {
        for i in 0..N {
            *sum += factors[i] * slices[i][done + place];
        }
    }
}

/// Rows of the weight that are read at a time.
const STREAMS: usize = 4;

/// Numbers between those that are multiplied and those that are asked for, of all rows together: two pages, since the processor
/// by itself stops reading ahead at the end of one.
pub(crate) const AHEAD: usize = 2048;

/// A dot product.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    dots::<S, 1, false>(simd, a, [b])[0]
}

/// Dot products of one slice with several, each with four sums under way, enough to hide the latency of adding; if that is
/// wanted, asking for what comes after the several.
#[inline(always)]
pub(crate) fn dots<S: Simd, const N: usize, const FETCH: bool>(
    simd: S,
    a: &[f32],
    several: [&[f32]; N],
) -> [f32; N] {
    let (a_vectors, a_rest) = S::as_simd_f32s(a);
    let (a_chunks, a_left) = a_vectors.as_chunks::<4>();
    let mut vectors: [&[S::f32s]; N] = [&[]; N];
    for (vectors, b) in vectors.iter_mut().zip(several) {
        // As many as of A, so that the compiler checks no index.
        *vectors = &S::as_simd_f32s(b).0[..a_vectors.len()];
    }
    let mut sums = [[simd.splat_f32s(0.0); 4]; N];
    for (place, a) in a_chunks.iter().enumerate() {
        for (sums, vectors) in sums.iter_mut().zip(vectors) {
            let b = &vectors[4 * place..4 * place + 4];
            if FETCH {
                let ahead = b.as_ptr().cast::<f32>().wrapping_add(AHEAD / N);
                simd::fetch_far(ahead, 4 * S::F32_LANES);
            }
            for lane in 0..4 {
                sums[lane] = simd.mul_add_f32s(a[lane], b[lane], sums[lane]);
            }
        }
    }
    let mut results = [0.0; N];
    let done = 4 * a_chunks.len();
    for (i, [first, second, third, fourth]) in sums.into_iter().enumerate() {
        let mut first = first;
        for (a, b) in a_left.iter().zip(&vectors[i][done..]) {
            first = simd.mul_add_f32s(*a, *b, first);
        }
        let sum = simd.add_f32s(simd.add_f32s(first, second), simd.add_f32s(third, fourth));
        let b_rest = &several[i][a.len() - a_rest.len()..];
        let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
        results[i] = simd.reduce_sum_f32s(sum) + rest;
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Onto;
    use crate::gemm::gemm_naive;

    #[test]
    fn every_output_is_written_however_many_threads_there_are() {
        let sizes = (1..=70).map(|output| (output, 9));
        let grains = [1, threads::GRAIN / 8, threads::GRAIN, threads::GRAIN + 1];
        for (output, input) in sizes.chain(grains.map(|input| (11, input))) {
            let weight: Vec<f32> = (0..output * input).map(|i| (i % 7) as f32 - 3.0).collect();
            let weight = Matrix::new(&weight, output, input);
            for rows in [1, FEW_ROWS] {
                let x: Vec<f32> = (0..rows * input).map(|i| (i % 5) as f32 - 2.0).collect();
                let shape = Shape {
                    rows,
                    input,
                    output,
                };
                for &instructions in simd::available() {
                    let results = [1, 2, 3, 8].map(|threads| {
                        let mut y = vec![f32::NAN; rows * output];
                        let target = Rows::of(&mut y, output);
                        by_rows(threads, shape, &x, weight, target, instructions);
                        y
                    });
                    // Small integers have exact sums, in whatever order.
                    let mut expected = vec![0.0; rows * output];
                    let x = Matrix::new(&x, rows, input);
                    gemm_naive(x, weight.transposed(), &mut expected, Onto::Replace);
                    for y in results {
                        assert_eq!(y, expected, "{rows} × {input} → {output}");
                    }
                }
            }
        }
    }
}
