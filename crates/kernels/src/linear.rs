//! Linear layers with the weight `[output, input]`: the forward GEMM with a fused bias and activation epilogue, a GEMV for few
//! rows at full memory bandwidth, and the three products of the backward pass.

mod backward;
mod gemv;

use pulp::{Simd, WithSimd};

use crate::Init;
use crate::activation::{self, Activation};
use crate::elementwise::AddAssignKernel;
use crate::gemm::{Gemm, Matrix};
use crate::partition::check_length;
use crate::simd;
use crate::threads::{self, TaskSet};

pub use backward::{InputBackward, LinearBackward, backward};
use gemv::{GEMV_MAX_ROWS, gemv};
pub(crate) use gemv::{PREFETCH_DISTANCE, dot, dots};

/// The sizes of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Rows of the input and of the output.
    pub rows: usize,
    /// Width of an input row.
    pub input: usize,
    /// Width of an output row.
    pub output: usize,
}

/// The operands of a linear layer: `y = activation(x · weightᵀ + bias)`.
#[derive(Debug)]
pub struct LinearForward<'a> {
    /// The sizes.
    pub shape: LinearShape,
    /// `[output, input]`, with contiguous rows or contiguous columns.
    pub weight: Matrix<'a>,
    /// `[output]`
    pub bias: Option<&'a [f32]>,
    /// The activation of the epilogue.
    pub activation: Option<Activation>,
    /// Where to save the activation's input for the backward pass.
    pub pre_activation: Option<&'a mut [f32]>,
    /// `[rows, output]`
    pub y: &'a mut [f32],
}

/// Applies several linear layers to one input, all in one job unless there are so few rows that GEMV is faster.
///
/// # Panics
/// When a slice does not match its shape.
pub fn forward<'a>(x: &'a [f32], layers: impl IntoIterator<Item = LinearForward<'a>>) {
    let mut gemms: Vec<Box<dyn TaskSet + 'a>> = Vec::new();
    for layer in layers {
        layer.check(x.len());
        let LinearForward {
            shape,
            weight,
            bias,
            activation,
            pre_activation,
            y,
        } = layer;
        let pre_activation = pre_activation.map(|it| SharedRows::of(it, shape.output));
        let instructions = simd::instructions();
        let epilogue = move |row: usize, column: usize, values: &mut [f32]| {
            // Even an empty kernel call per row has a cost.
            if pre_activation.is_none() && activation.is_none() {
                return;
            }
            if let Some(rows) = pre_activation {
                rows.prefetch_after(row, column, values.len());
            }
            // SAFETY: the epilogue is called once for each segment of a row, and the saved rows are as wide as the outputs.
            let saved = pre_activation.map(|it| unsafe { it.segment(row, column, values.len()) });
            let kernel = Epilogue {
                saved,
                op: activation.map_or(EpilogueOp::None, EpilogueOp::Activate),
                values,
            };
            simd::run(instructions, kernel);
        };
        if shape.rows <= GEMV_MAX_ROWS {
            linear_with_epilogue(shape, x, weight, bias, y, epilogue);
        } else {
            gemms.push(Box::new(Gemm::new(
                [shape.operands(x, weight)],
                y,
                init(bias),
                epilogue,
            )));
        }
    }
    let gemms: Vec<&dyn TaskSet> = gemms.iter().map(|gemm| &**gemm).collect();
    threads::run_all(&gemms);
}

impl LinearForward<'_> {
    fn check(&self, x: usize) {
        let LinearShape {
            rows,
            input,
            output,
        } = self.shape;
        let outputs = rows * output;
        let saved = self.pre_activation.as_ref().map_or(outputs, |it| it.len());
        let sizes = [
            ("input", x, rows * input),
            ("bias", self.bias.map_or(output, <[f32]>::len), output),
            ("pre_activation", saved, outputs),
            ("output", self.y.len(), outputs),
        ];
        for (name, length, expected) in sizes {
            check_length("linear", name, length, expected);
        }
        self.shape.check_weight("linear", self.weight);
    }
}

impl LinearShape {
    /// The operands of the product.
    fn operands<'a>(self, x: &'a [f32], weight: Matrix<'a>) -> (Matrix<'a>, Matrix<'a>) {
        (Matrix::new(x, self.rows, self.input), weight.transposed())
    }

    /// Panics if a weight has other sizes.
    pub(crate) fn check_weight(self, operation: &str, weight: Matrix) {
        let (found, expected) = (weight.sizes(), [self.output, self.input]);
        assert_eq!(
            found, expected,
            "{operation}: weight is {found:?} instead of {expected:?}"
        );
    }
}

fn init(bias: Option<&[f32]>) -> Init<'_> {
    bias.map_or(Init::Zero, Init::Bias)
}

/// `x · weightᵀ + bias`, with an epilogue for each segment of a row while it is in cache.
pub(crate) fn linear_with_epilogue(
    shape: LinearShape,
    x: &[f32],
    weight: Matrix,
    bias: Option<&[f32]>,
    y: &mut [f32],
    epilogue: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    check_length("linear", "output", y.len(), shape.rows * shape.output);
    if shape.rows <= GEMV_MAX_ROWS {
        let instructions = simd::instructions();
        gemv(shape, x, weight, y, instructions);
        for (row, values) in y.chunks_mut(shape.output.max(1)).enumerate() {
            if let Some(bias) = bias {
                simd::run(instructions, AddAssignKernel { x: values, y: bias });
            }
            epilogue(row, 0, values);
        }
    } else {
        let gemm = Gemm::new([shape.operands(x, weight)], y, init(bias), epilogue);
        threads::run_all(&[&gemm]);
    }
}

/// A pointer to rows, of which tasks write disjoint segments.
#[derive(Clone, Copy)]
pub(crate) struct SharedRows {
    start: *mut f32,
    width: usize,
}

// SAFETY: each task writes only to its own segments.
unsafe impl Send for SharedRows {}
// SAFETY: as above; the pointer itself is only read.
unsafe impl Sync for SharedRows {}

impl SharedRows {
    pub(crate) fn of(rows: &mut [f32], width: usize) -> Self {
        Self {
            start: rows.as_mut_ptr(),
            width,
        }
    }

    /// # Safety
    /// The segment must lie inside the rows, which must still be borrowed, and nothing else may access it.
    pub(crate) unsafe fn segment<'a>(
        self,
        row: usize,
        column: usize,
        length: usize,
    ) -> &'a mut [f32] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + column), length) }
    }

    /// Prefetches the same segment a few rows ahead: it has been evicted since its last use. The row may lie beyond the
    /// last.
    #[inline(always)]
    pub(crate) fn prefetch_after(self, row: usize, column: usize, length: usize) {
        const PREFETCH_ROWS: usize = 3;
        let row = row + PREFETCH_ROWS;
        simd::prefetch_l1(self.start.wrapping_add(row * self.width + column), length);
    }
}

/// The epilogue of a segment of a row, while it is in cache: saves it, and then applies an operation.
pub(crate) struct Epilogue<'a> {
    pub saved: Option<&'a mut [f32]>,
    pub op: EpilogueOp<'a>,
    pub values: &'a mut [f32],
}

/// The operation of an [`Epilogue`].
pub(crate) enum EpilogueOp<'a> {
    None,
    Activate(Activation),
    /// Multiplies by the activated gate.
    Gate(Activation, &'a [f32]),
}

impl WithSimd for Epilogue<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let values = self.values;
        match (self.op, self.saved) {
            (EpilogueOp::Activate(kind), Some(saved)) => {
                activation::activate_saving(simd, kind, values, saved);
            }
            (EpilogueOp::Activate(kind), None) => {
                activation::activate_in_place(simd, kind, values);
            }
            (op, saved) => {
                if let Some(saved) = saved {
                    saved.copy_from_slice(values);
                }
                if let EpilogueOp::Gate(kind, gate) = op {
                    activation::gate_in_place(simd, kind, gate, values);
                }
            }
        }
    }
}

/// The specification: one element at a time.
pub mod naive {
    use super::LinearShape;

    /// `x · weightᵀ + bias`.
    pub fn forward(
        shape: LinearShape,
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Vec<f64> {
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
}

#[cfg(test)]
mod tests;
