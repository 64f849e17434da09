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
        by_rows(shape, x, weight, Rows::of(y, output), instructions);
    } else {
        by_columns(shape, x, weight.transposed(), y, instructions);
    }
}

/// How many of `count` rows or columns of so many numbers each task has. Few and long pieces: the processor reads ahead along
/// each.
fn step(count: usize, numbers: usize) -> usize {
    let least = threads::GRAIN / numbers;
    count.div_ceil(2 * threads::count()).max(least)
}

fn by_rows(shape: Shape, x: &[f32], weight: Matrix, target: Rows, instructions: Instructions) {
    let step = step(shape.output, shape.input);
    threads::each(shape.output.div_ceil(step), |part| {
        let first = part * step;
        let kernel = Dots {
            x,
            weight,
            outputs: first..shape.output.min(first + step),
            target,
        };
        simd::run(instructions, kernel);
    });
}

/// Each part has sums of its own, which are then added up: the columns are read from end to end.
fn by_columns(shape: Shape, x: &[f32], columns: Matrix, y: &mut [f32], instructions: Instructions) {
    let step = step(shape.input, shape.output);
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

/// Each row of the weight meets every row of `x`.
struct Dots<'a> {
    x: &'a [f32],
    weight: Matrix<'a>,
    outputs: Range<usize>,
    target: Rows,
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let [_, input] = self.weight.sizes();
        for column in self.outputs {
            let weight = self.weight.row(column).expect("chosen for its rows");
            for (row, x) in self.x.chunks_exact(input).enumerate() {
                // SAFETY: this task alone writes to these outputs.
                let out = unsafe { self.target.piece(row, column, 1) };
                // The first row fetches for all.
                out[0] = match row {
                    0 => dot_fetching::<S, AHEAD>(simd, x, weight),
                    _ => dot(simd, x, weight),
                };
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

/// Numbers between those that are multiplied and those that are asked for: two pages, since the processor by itself stops
/// reading ahead at the end of one.
const AHEAD: usize = 2048;

/// A dot product with four sums under way, enough to hide the latency of adding.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    dot_fetching::<S, 0>(simd, a, b)
}

/// [`dot`] that asks for what comes so many numbers after those of `b`, unless that is none.
#[inline(always)]
fn dot_fetching<S: Simd, const DISTANCE: usize>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a_vectors, a_rest) = S::as_simd_f32s(a);
    let (b_vectors, b_rest) = S::as_simd_f32s(b);
    let mut sums = [simd.splat_f32s(0.0); 4];
    let (a_chunks, a_left) = a_vectors.as_chunks::<4>();
    let (b_chunks, b_left) = b_vectors.as_chunks::<4>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        if DISTANCE > 0 {
            let ahead = b.as_ptr().cast::<f32>().wrapping_add(DISTANCE);
            simd::fetch_far(ahead, 4 * S::F32_LANES);
        }
        for lane in 0..4 {
            sums[lane] = simd.mul_add_f32s(a[lane], b[lane], sums[lane]);
        }
    }
    for (a, b) in a_left.iter().zip(b_left) {
        sums[0] = simd.mul_add_f32s(*a, *b, sums[0]);
    }
    let sum = simd.add_f32s(
        simd.add_f32s(sums[0], sums[1]),
        simd.add_f32s(sums[2], sums[3]),
    );
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    simd.reduce_sum_f32s(sum) + rest
}
