//! GEMV, for up to a few rows: reads the weight once, at full memory bandwidth, and packs nothing.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{LinearShape, SharedRows};
use crate::gemm::Matrix;
use crate::simd::{self, Instructions};
use crate::{elementwise, partition, threads};

/// With more rows, packing pays off and GEMM is faster.
pub(super) const GEMV_MAX_ROWS: usize = 4;

/// `y = x · weightᵀ`, where the weight has contiguous rows or contiguous columns.
pub(super) fn gemv(
    shape: LinearShape,
    x: &[f32],
    weight: Matrix,
    y: &mut [f32],
    instructions: Instructions,
) {
    let LinearShape {
        rows,
        input,
        output,
    } = shape;
    if rows == 0 || output == 0 || input == 0 {
        y.fill(0.0);
    } else if weight.row(0).is_some() {
        let out = SharedRows::of(y, output);
        gemv_row_major(threads::count(), shape, x, weight, out, instructions);
    } else {
        gemv_column_major(shape, x, weight.transposed(), y, instructions);
    }
}

/// Tasks per thread: enough that stealing balances the load.
const TASKS_PER_THREAD: usize = 8;

/// Dot products with rows of the weight. Each thread has consecutive rows, which it reads as several concurrent streams if there
/// are enough registers. A task is a section of all streams, so that the next task continues where it ended.
fn gemv_row_major(
    threads: usize,
    shape: LinearShape,
    x: &[f32],
    weight: Matrix,
    out: SharedRows,
    instructions: Instructions,
) {
    let min_rows = (threads::GRAIN / shape.input).max(1);
    let threads = threads.min(shape.output.div_ceil(min_rows));
    threads::parallel_for_grouped(threads, TASKS_PER_THREAD, |thread, section| {
        let kernel = RowDots {
            x,
            weight,
            rows: threads::even_range(shape.output, thread, threads),
            section,
            out,
        };
        simd::run(instructions, kernel);
    });
}

/// Parts of the columns, independent of the number of threads, so that results are too.
const COLUMN_PARTS: usize = 16;

/// Sums of columns of the weight, scaled by `x`. Each part has partial sums of its own, so that columns are read from end to end.
fn gemv_column_major(
    shape: LinearShape,
    x: &[f32],
    columns: Matrix,
    y: &mut [f32],
    instructions: Instructions,
) {
    let min_columns = threads::GRAIN / shape.output;
    let step = shape.input.div_ceil(COLUMN_PARTS).max(min_columns);
    let starts: Vec<usize> = (0..shape.input).step_by(step).collect();
    let sums = partition::map(starts, |first| {
        let mut sums = vec![0.0; y.len()];
        let kernel = ColumnAxpys {
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

/// Dot products of some rows of the weight with every row of `x`.
struct RowDots<'a> {
    x: &'a [f32],
    weight: Matrix<'a>,
    /// The rows of the thread.
    rows: Range<usize>,
    /// The section of each stream.
    section: usize,
    out: SharedRows,
}

impl WithSimd for RowDots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Several concurrent streams achieve a higher memory bandwidth, but need registers for their sums.
        match S::REGISTER_COUNT {
            0..32 => self.run_streams::<S, 1>(simd),
            _ => self.run_streams::<S, STREAMS>(simd),
        }
    }
}

impl RowDots<'_> {
    /// A section of each of `N` streams over the thread's rows; the first section also takes the remaining rows.
    #[inline(always)]
    fn run_streams<S: Simd, const N: usize>(&self, simd: S) {
        let Range { start, end } = self.rows;
        let stream = (end - start) / N;
        for step in threads::even_range(stream, self.section, TASKS_PER_THREAD) {
            self.compute::<S, N>(simd, std::array::from_fn(|i| start + i * stream + step));
        }
        if self.section == 0 {
            for row in start + N * stream..end {
                self.compute::<S, 1>(simd, [row]);
            }
        }
    }

    /// `N` outputs for every row of `x`.
    #[inline(always)]
    fn compute<S: Simd, const N: usize>(&self, simd: S, outputs: [usize; N]) {
        let [_, input] = self.weight.sizes();
        let mut weights: [&[f32]; N] = [&[]; N];
        for (weight, output) in weights.iter_mut().zip(outputs) {
            *weight = self.weight.row(output).expect("rows are contiguous");
        }
        for (row, x) in self.x.chunks_exact(input).enumerate() {
            // The first row prefetches for all.
            let results = match row {
                0 => dots::<S, N, true>(simd, x, weights),
                _ => dots::<S, N, false>(simd, x, weights),
            };
            for (result, output) in results.into_iter().zip(outputs) {
                // SAFETY: this task alone writes to these outputs.
                let out = unsafe { self.out.segment(row, output, 1) };
                out[0] = result;
            }
        }
    }
}

/// Adds columns of the weight, each scaled by its value of `x`, to the sums.
struct ColumnAxpys<'a> {
    x: &'a [f32],
    /// `[input, output]`
    columns: Matrix<'a>,
    inputs: Range<usize>,
    /// `[rows, output]`
    sums: &'a mut [f32],
}

/// Columns added in one pass over the sums.
const COLUMNS_PER_PASS: usize = 4;

impl WithSimd for ColumnAxpys<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let [input, output] = self.columns.sizes();
        let whole = self.inputs.start + self.inputs.len() / COLUMNS_PER_PASS * COLUMNS_PER_PASS;
        let column = |index| self.columns.row(index).expect("columns are contiguous");
        for index in (self.inputs.start..whole).step_by(COLUMNS_PER_PASS) {
            let columns: [&[f32]; COLUMNS_PER_PASS] = std::array::from_fn(|i| column(index + i));
            let rows = self.x.chunks_exact(input);
            for (x, sums) in rows.zip(self.sums.chunks_exact_mut(output)) {
                let factors = std::array::from_fn(|i| x[index + i]);
                axpys(simd, factors, columns, sums);
            }
        }
        for index in whole..self.inputs.end {
            let rows = self.x.chunks_exact(input);
            for (x, sums) in rows.zip(self.sums.chunks_exact_mut(output)) {
                axpys(simd, [x[index]], [column(index)], sums);
            }
        }
    }
}

/// Several AXPYs in one pass: adds slices, each times its factor.
#[inline(always)]
fn axpys<S: Simd, const N: usize>(
    simd: S,
    factors: [f32; N],
    slices: [&[f32]; N],
    sums: &mut [f32],
) {
    let (vectors, rest) = S::as_mut_simd_f32s(sums);
    let mut wide: [&[S::f32s]; N] = [&[]; N];
    let mut broadcast = [simd.splat_f32s(0.0); N];
    for i in 0..N {
        // All of one length, so that the compiler elides bounds checks.
        wide[i] = &S::as_simd_f32s(slices[i]).0[..vectors.len()];
        broadcast[i] = simd.splat_f32s(factors[i]);
    }
    let done = vectors.len() * S::F32_LANES;
    for (index, sum) in vectors.iter_mut().enumerate() {
        let mut total = *sum;
        for i in 0..N {
            total = simd.mul_add_f32s(broadcast[i], wide[i][index], total);
        }
        *sum = total;
    }
    for (index, sum) in rest.iter_mut().enumerate() {
        for i in 0..N {
            *sum += factors[i] * slices[i][done + index];
        }
    }
}

/// Concurrent streams over rows of the weight.
const STREAMS: usize = 4;

/// Prefetch distance in values, over all streams together: two pages, because the hardware prefetcher stops at the end of a page.
pub(crate) const PREFETCH_DISTANCE: usize = 2048;

/// The dot product of two slices.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    dots::<S, 1, false>(simd, a, [b])[0]
}

/// Dot products of one slice with several, each with four accumulators to hide the latency of FMAs.
#[inline(always)]
pub(crate) fn dots<S: Simd, const N: usize, const PREFETCH: bool>(
    simd: S,
    a: &[f32],
    several: [&[f32]; N],
) -> [f32; N] {
    let (a_vectors, a_rest) = S::as_simd_f32s(a);
    let (a_chunks, a_left) = a_vectors.as_chunks::<4>();
    let mut vectors: [&[S::f32s]; N] = [&[]; N];
    for (vectors, b) in vectors.iter_mut().zip(several) {
        // As many vectors as A has, so that the compiler elides bounds checks.
        *vectors = &S::as_simd_f32s(b).0[..a_vectors.len()];
    }
    let mut sums = [[simd.splat_f32s(0.0); 4]; N];
    for (chunk, a) in a_chunks.iter().enumerate() {
        for (sums, vectors) in sums.iter_mut().zip(vectors) {
            let b = &vectors[4 * chunk..4 * chunk + 4];
            if PREFETCH {
                let next = b.as_ptr().cast::<f32>().wrapping_add(PREFETCH_DISTANCE / N);
                simd::prefetch_l2(next, 4 * S::F32_LANES);
            }
            for i in 0..4 {
                sums[i] = simd.mul_add_f32s(a[i], b[i], sums[i]);
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
    use crate::Init;
    use crate::gemm;

    #[test]
    fn every_output_is_written_however_many_threads_there_are() {
        let sizes = (1..=70).map(|output| (output, 9));
        let grains = [1, threads::GRAIN / 8, threads::GRAIN, threads::GRAIN + 1];
        for (output, input) in sizes.chain(grains.map(|input| (11, input))) {
            let weight: Vec<f32> = (0..output * input).map(|i| (i % 7) as f32 - 3.0).collect();
            let weight = Matrix::new(&weight, output, input);
            for rows in [1, GEMV_MAX_ROWS] {
                let x: Vec<f32> = (0..rows * input).map(|i| (i % 5) as f32 - 2.0).collect();
                let shape = LinearShape {
                    rows,
                    input,
                    output,
                };
                for &instructions in simd::available() {
                    let results = [1, 2, 3, 8].map(|threads| {
                        let mut y = vec![f32::NAN; rows * output];
                        let out = SharedRows::of(&mut y, output);
                        gemv_row_major(threads, shape, &x, weight, out, instructions);
                        y
                    });
                    // Sums of small integers are exact in any order.
                    let mut expected = vec![0.0; rows * output];
                    let x = Matrix::new(&x, rows, input);
                    gemm::naive::gemm(x, weight.transposed(), &mut expected, Init::Zero);
                    for y in results {
                        assert_eq!(y, expected, "{rows} × {input} → {output}");
                    }
                }
            }
        }
    }
}
