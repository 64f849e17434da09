//! Linear maps with the weight kept `[output, input]`: the forward product with bias and activation applied while the
//! result is in cache, the three products of the backward pass, and dot products at full bandwidth for a few rows.

use pulp::{Simd, WithSimd};

use crate::Onto;
use crate::activation::{self, Activation};
use crate::elementwise;
use crate::gemm::{Matrix, gemm};
use crate::parts::{self, Parts, fits};
use crate::simd::{self, Instructions};
use crate::threads;

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

/// `y = activation(x · weightᵀ + bias)`.
///
/// With `before`, what the activation was applied to is written there, for the backward pass.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn forward(
    shape: Shape,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    activation: Option<Activation>,
    before: Option<&mut [f32]>,
    y: &mut [f32],
) {
    let Shape {
        rows,
        input,
        output,
    } = shape;
    let sizes = [
        ("input", x.len(), rows * input),
        ("weight", weight.len(), output * input),
        ("bias", bias.map_or(output, <[f32]>::len), output),
        (
            "saved",
            before.as_ref().map_or(rows * output, |it| it.len()),
            rows * output,
        ),
    ];
    for (name, length, expected) in sizes {
        fits("linear", name, length, expected);
    }
    let before = before.map(|before| Rows::of(before, output));
    let instructions = simd::instructions();
    product(shape, x, weight, y, |row, column, values| {
        // SAFETY: the product finishes each piece of a row once, and the saved rows are as wide as the results.
        let before = before.map(|it| unsafe { it.piece(row, column, values.len()) });
        let kernel = Finish {
            bias: bias.map(|bias| &bias[column..column + values.len()]),
            kept: before,
            then: activation.map_or(Then::Nothing, Then::Activate),
            values,
        };
        simd::run(instructions, kernel);
    });
}

/// `x · weightᵀ`, with work on each piece of a row while it is in cache.
pub(crate) fn product(
    shape: Shape,
    x: &[f32],
    weight: &[f32],
    y: &mut [f32],
    finish: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    let Shape {
        rows,
        input,
        output,
    } = shape;
    fits("linear", "output", y.len(), rows * output);
    if rows <= FEW_ROWS {
        few_rows(shape, x, weight, y, simd::instructions());
        for (row, values) in y.chunks_mut(output.max(1)).enumerate() {
            finish(row, 0, values);
        }
    } else {
        let weight = Matrix::new(weight, output, input).transposed();
        gemm(
            Matrix::new(x, rows, input),
            weight,
            y,
            Onto::Replace,
            finish,
        );
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
    fn with_simd<S: Simd>(mut self, simd: S) {
        let values = self.values;
        if let Some(bias) = self.bias {
            elementwise::add_to(simd, values, bias);
        }
        if let (Then::Activate(kind), Some(kept)) = (&self.then, self.kept.as_deref_mut()) {
            // One pass for both.
            return activation::activate_keeping(simd, *kind, values, kept);
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

/// Where gradients go; those that nobody needs are left out.
#[derive(Debug, Default)]
pub struct Gradients<'a> {
    /// Of the input, `[rows, input]`, and whether it is added to what is there.
    pub x: Option<(&'a mut [f32], Onto)>,
    /// Of the weight, `[output, input]`.
    pub weight: Option<&'a mut [f32]>,
    /// Of the bias, `[output]`.
    pub bias: Option<&'a mut [f32]>,
}

/// Gradients of `x · weightᵀ + bias`, given the gradient `dy` of the result.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn backward(shape: Shape, dy: &[f32], x: &[f32], weight: &[f32], gradients: Gradients) {
    let Shape {
        rows,
        input,
        output,
    } = shape;
    let Gradients {
        x: dx,
        weight: dweight,
        bias: dbias,
    } = gradients;
    let length = |it: &Option<&mut [f32]>| it.as_ref().map(|it| it.len());
    let dx_length = dx.as_ref().map(|(dx, _)| dx.len());
    let sizes = [
        ("gradient", Some(dy.len()), rows * output),
        ("input", Some(x.len()), rows * input),
        ("weight", Some(weight.len()), output * input),
        ("gradient of the input", dx_length, rows * input),
        ("gradient of the weight", length(&dweight), output * input),
        ("gradient of the bias", length(&dbias), output),
    ];
    for (name, length, expected) in sizes {
        fits(
            "linear_backward",
            name,
            length.unwrap_or(expected),
            expected,
        );
    }
    let slopes = Matrix::new(dy, rows, output);
    if let Some((dx, onto)) = dx {
        let weight = Matrix::new(weight, output, input);
        gemm(slopes, weight, dx, onto, |_, _, _| ());
    }
    if let Some(dweight) = dweight {
        gemm(
            slopes.transposed(),
            Matrix::new(x, rows, input),
            dweight,
            Onto::Replace,
            |_, _, _| (),
        );
    }
    if let Some(dbias) = dbias {
        sum_rows(dy, dbias);
    }
}

/// The sums of the columns, in an order that does not depend on scheduling.
fn sum_rows(rows: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    sums.fill(0.0);
    if width == 0 {
        return;
    }
    let cut = Parts::of_rows(rows.len() / width, width);
    let parts = parts::map(cut.cut(rows, width).collect(), |part: &[f32]| {
        let mut sums = vec![0.0; width];
        for row in part.chunks_exact(width) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        sums
    });
    for part in parts {
        for (sum, value) in sums.iter_mut().zip(part) {
            *sum += value;
        }
    }
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
mod tests {
    use super::*;
    use crate::simd::with_instructions;
    use proptest::prelude::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0)
            .collect()
    }

    fn close(ours: &[f32], theirs: &[f64], what: &str) {
        assert_eq!(ours.len(), theirs.len(), "{what}");
        for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
            assert!(
                (f64::from(*a) - b).abs() < 1e-4 * (1.0 + b.abs()),
                "{what} at {i}: {a} for {b}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn equals_its_twin(
            rows in prop_oneof![0usize..9, Just(13), Just(97)],
            input in prop_oneof![0usize..40, Just(127), Just(300)],
            output in prop_oneof![0usize..40, Just(129), Just(1000)],
            bias: bool,
        ) {
            let shape = Shape { rows, input, output };
            let (x, weight) = (numbers(rows * input, 1), numbers(output * input, 2));
            let bias_data = numbers(output, 3);
            let bias = bias.then_some(bias_data.as_slice());
            let expected = forward_naive(shape, &x, &weight, bias);
            for instructions in [Instructions::Native, Instructions::Scalar] {
                with_instructions(instructions, || {
                    let mut y = vec![f32::NAN; rows * output];
                    forward(shape, &x, &weight, bias, None, None, &mut y);
                    close(&y, &expected, "y");
                    let mut before = vec![f32::NAN; rows * output];
                    forward(shape, &x, &weight, bias, Some(Activation::Relu), Some(&mut before), &mut y);
                    close(&before, &expected, "before");
                    let cut: Vec<f64> = expected.iter().map(|value| value.max(0.0)).collect();
                    close(&y, &cut, "activated");
                });
            }
            let dy = numbers(rows * output, 4);
            let mut dx = vec![f32::NAN; rows * input];
            let mut dweight = vec![f32::NAN; output * input];
            let mut dbias = vec![f32::NAN; output];
            let gradients = Gradients { x: Some((&mut dx, Onto::Replace)), weight: Some(&mut dweight), bias: Some(&mut dbias) };
            backward(shape, &dy, &x, &weight, gradients);
            let at = |data: &[f32], i: usize| f64::from(data[i]);
            let sum = |count: usize, term: &dyn Fn(usize) -> f64| (0..count).map(term).sum::<f64>();
            let slopes: Vec<f64> = (0..rows * input)
                .map(|i| sum(output, &|o| at(&dy, i / input * output + o) * at(&weight, o * input + i % input)))
                .collect();
            close(&dx, &slopes, "dx");
            let slopes: Vec<f64> = (0..output * input)
                .map(|i| sum(rows, &|r| at(&dy, r * output + i / input) * at(&x, r * input + i % input)))
                .collect();
            close(&dweight, &slopes, "dweight");
            let slopes: Vec<f64> = (0..output).map(|o| sum(rows, &|r| at(&dy, r * output + o))).collect();
            close(&dbias, &slopes, "dbias");
        }
    }
}
