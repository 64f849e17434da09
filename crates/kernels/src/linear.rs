//! Linear maps with the weight kept `[output, input]`: the forward product with bias and activation applied while the
//! result is in cache, the three products of the backward pass, and dot products at full bandwidth for a few rows.

mod backward;

use pulp::{Simd, WithSimd};

use crate::Onto;
use crate::activation::{self, Activation};
use crate::elementwise;
use crate::gemm::{Matrix, Product, gemm};
use crate::parts::fits;
use crate::simd::{self, Instructions};
use crate::threads::{self, Work};

pub use backward::{Applied, Map, backward};

/// The sizes of a linear map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows that are mapped.
    pub rows: usize,
    /// Width of a row before.
    pub input: usize,
    /// Width of a row after.
    pub output: usize,
}

/// Up to this many rows, the weight is read once and nothing is packed.
const FEW_ROWS: usize = 4;

/// A map to be applied: `y = activation(x · weightᵀ + bias)`.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Its sizes.
    pub shape: Shape,
    /// `[output, input]`
    pub weight: &'a [f32],
    /// `[output]`
    pub bias: Option<&'a [f32]>,
    /// What is applied to the sum.
    pub activation: Option<Activation>,
    /// Where to keep what the activation is applied to, for the backward pass.
    pub before: Option<&'a mut [f32]>,
    /// `[rows, output]`
    pub y: &'a mut [f32],
}

/// Applies maps to one input: beyond a few rows, all in one job.
///
/// # Panics
/// When a slice does not fit its shape.
pub fn forward<'a>(x: &'a [f32], maps: impl IntoIterator<Item = Forward<'a>>) {
    let mut works: Vec<Box<dyn Work + 'a>> = Vec::new();
    for map in maps {
        map.check(x.len());
        let Forward {
            shape,
            weight,
            bias,
            activation,
            before,
            y,
        } = map;
        let before = before.map(|before| Rows::of(before, shape.output));
        let instructions = simd::instructions();
        let finish = move |row: usize, column: usize, values: &mut [f32]| {
            // SAFETY: the product finishes each piece of a row once, and the saved rows are as wide as the results.
            let before = before.map(|it| unsafe { it.piece(row, column, values.len()) });
            let kernel = Finish {
                bias: bias.map(|bias| &bias[column..column + values.len()]),
                kept: before,
                then: activation.map_or(Then::Nothing, Then::Activate),
                values,
            };
            simd::run(instructions, kernel);
        };
        if shape.rows <= FEW_ROWS {
            product(shape, x, weight, y, finish);
        } else {
            works.push(Box::new(Product::new(
                [shape.operands(x, weight)],
                y,
                Onto::Replace,
                finish,
            )));
        }
    }
    let works: Vec<&dyn Work> = works.iter().map(|work| &**work).collect();
    threads::together(&works);
}

impl Forward<'_> {
    fn check(&self, x: usize) {
        let Shape {
            rows,
            input,
            output,
        } = self.shape;
        let results = rows * output;
        let saved = self.before.as_ref().map_or(results, |it| it.len());
        let sizes = [
            ("input", x, rows * input),
            ("weight", self.weight.len(), output * input),
            ("bias", self.bias.map_or(output, <[f32]>::len), output),
            ("saved", saved, results),
            ("output", self.y.len(), results),
        ];
        for (name, length, expected) in sizes {
            fits("linear", name, length, expected);
        }
    }
}

impl Shape {
    /// The factors of the product.
    fn operands<'a>(self, x: &'a [f32], weight: &'a [f32]) -> (Matrix<'a>, Matrix<'a>) {
        (
            Matrix::new(x, self.rows, self.input),
            Matrix::new(weight, self.output, self.input).transposed(),
        )
    }
}

/// `x · weightᵀ`, with work on each piece of a row while it is in cache.
pub(crate) fn product(
    shape: Shape,
    x: &[f32],
    weight: &[f32],
    y: &mut [f32],
    finish: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    fits("linear", "output", y.len(), shape.rows * shape.output);
    if shape.rows <= FEW_ROWS {
        few_rows(shape, x, weight, y, simd::instructions());
        for (row, values) in y.chunks_mut(shape.output.max(1)).enumerate() {
            finish(row, 0, values);
        }
    } else {
        let (x, weight) = shape.operands(x, weight);
        gemm(x, weight, y, Onto::Replace, finish);
    }
}

/// Rows that tasks write to, each to its own.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    start: *mut f32,
    width: usize,
}

// SAFETY: each task writes only to pieces of its own.
unsafe impl Send for Rows {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for Rows {}

impl Rows {
    pub(crate) fn of(numbers: &mut [f32], width: usize) -> Self {
        Self {
            start: numbers.as_mut_ptr(),
            width,
        }
    }

    /// # Safety
    /// The piece must lie inside the rows, which must still be borrowed, and nobody else may use it.
    pub(crate) unsafe fn piece<'a>(
        self,
        row: usize,
        column: usize,
        length: usize,
    ) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + column), length) }
    }

    /// Asks the processor for a piece that is needed soon; whether it lies inside the rows does not matter.
    #[inline(always)]
    pub(crate) fn fetch(self, row: usize, column: usize, length: usize) {
        simd::fetch(self.start.wrapping_add(row * self.width + column), length);
    }
}

/// What is done to a piece of a row of results while it is in cache: the bias is added, the sum is kept, and then something.
pub(crate) struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    pub kept: Option<&'a mut [f32]>,
    pub then: Then<'a>,
    pub values: &'a mut [f32],
}

/// What becomes of a product and its bias.
pub(crate) enum Then<'a> {
    Nothing,
    Activate(Activation),
    /// Multiplied with the activation of a gate.
    Gate(Activation, &'a [f32]),
}

impl WithSimd for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let values = self.values;
        if let (Then::Activate(kind), Some(bias)) = (&self.then, self.bias) {
            // One pass for all of it.
            return match self.kept {
                Some(kept) => activation::activate_sum_keeping(simd, *kind, bias, values, kept),
                None => activation::activate_sum(simd, *kind, bias, values),
            };
        }
        if let Some(bias) = self.bias {
            elementwise::add_to(simd, values, bias);
        }
        if let Some(kept) = self.kept {
            kept.copy_from_slice(values);
        }
        match self.then {
            Then::Nothing => (),
            Then::Activate(kind) => activation::activate_in_place(simd, kind, values),
            Then::Gate(kind, gate) => activation::gate_in_place(simd, kind, gate, values),
        }
    }
}

/// `y = x · weightᵀ` for a few rows: each row of the weight is read once and meets every row of `x`.
fn few_rows(shape: Shape, x: &[f32], weight: &[f32], y: &mut [f32], instructions: Instructions) {
    let Shape {
        rows,
        input,
        output,
    } = shape;
    if rows == 0 || output == 0 || input == 0 {
        y.fill(0.0);
        return;
    }
    let target = Rows::of(y, output);
    // Few and long pieces: the processor reads ahead along each.
    let step = output
        .div_ceil(2 * threads::count())
        .max(threads::GRAIN / input);
    let task = |part: usize| {
        let first = part * step;
        let count = step.min(output - first);
        let kernel = Dots {
            x,
            weight: &weight[first * input..(first + count) * input],
            shape,
            first,
            target,
        };
        simd::run(instructions, kernel);
    };
    let parts = output.div_ceil(step);
    threads::each(parts, task);
}

struct Dots<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    shape: Shape,
    first: usize,
    target: Rows,
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let input = self.shape.input;
        for (column, weight) in self.weight.chunks_exact(input).enumerate() {
            for (row, x) in self.x.chunks_exact(input).enumerate() {
                // SAFETY: this task alone writes to these outputs.
                let out = unsafe { self.target.piece(row, self.first + column, 1) };
                out[0] = dot(simd, x, weight);
            }
        }
    }
}

/// A dot product with four sums under way, enough to hide the latency of adding.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a_vectors, a_rest) = S::as_simd_f32s(a);
    let (b_vectors, b_rest) = S::as_simd_f32s(b);
    let mut sums = [simd.splat_f32s(0.0); 4];
    let (a_chunks, a_left) = a_vectors.as_chunks::<4>();
    let (b_chunks, b_left) = b_vectors.as_chunks::<4>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
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

/// The specification of [`forward`] without activation.
pub fn forward_naive(shape: Shape, x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
    let mut y = Vec::with_capacity(shape.rows * shape.output);
    for row in 0..shape.rows {
        for out in 0..shape.output {
            let product = |i: usize| {
                f64::from(x[row * shape.input + i]) * f64::from(weight[out * shape.input + i])
            };
            let sum: f64 = (0..shape.input).map(product).sum();
            y.push(sum + bias.map_or(0.0, |bias| f64::from(bias[out])));
        }
    }
    y
}

#[cfg(test)]
mod tests;
