//! Linear maps with the weight `[output, input]`: the forward product with the bias added where tiles are stored and the
//! activation applied while they are in cache, the three products of the backward pass, and the forward product of a few rows
//! at full bandwidth.

mod backward;
mod few;

use pulp::{Simd, WithSimd};

use crate::activation::{self, Activation};
use crate::elementwise::AddTo;
use crate::gemm::{Matrix, Product};
use crate::micro::Base;
use crate::parts::fits;
use crate::simd;
use crate::threads::{self, Work};

pub use backward::{Applied, Map, backward};
pub(crate) use few::{AHEAD, dot, dots};
use few::{FEW_ROWS, few_rows};

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

/// A map to be applied: `y = activation(x · weightᵀ + bias)`.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Its sizes.
    pub shape: Shape,
    /// `[output, input]`; the numbers of its rows follow each other, or those of its columns.
    pub weight: Matrix<'a>,
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
            // Nothing to do: not even a call for each row.
            if before.is_none() && activation.is_none() {
                return;
            }
            if let Some(rows) = before {
                rows.fetch_after(row, column, values.len());
            }
            // SAFETY: the product finishes each piece of a row once, and the saved rows are as wide as the results.
            let before = before.map(|it| unsafe { it.piece(row, column, values.len()) });
            let kernel = Finish {
                kept: before,
                then: activation.map_or(Then::Nothing, Then::Activate),
                values,
            };
            simd::run(instructions, kernel);
        };
        if shape.rows <= FEW_ROWS {
            product(shape, x, weight, bias, y, finish);
        } else {
            works.push(Box::new(Product::new(
                [shape.operands(x, weight)],
                y,
                base(bias),
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
            ("bias", self.bias.map_or(output, <[f32]>::len), output),
            ("saved", saved, results),
            ("output", self.y.len(), results),
        ];
        for (name, length, expected) in sizes {
            fits("linear", name, length, expected);
        }
        self.shape.fits_weight("linear", self.weight);
    }
}

impl Shape {
    /// The factors of the product.
    fn operands<'a>(self, x: &'a [f32], weight: Matrix<'a>) -> (Matrix<'a>, Matrix<'a>) {
        (Matrix::new(x, self.rows, self.input), weight.transposed())
    }

    /// Panics where a weight has other sizes.
    pub(crate) fn fits_weight(self, operation: &str, weight: Matrix) {
        let (found, expected) = (weight.sizes(), [self.output, self.input]);
        assert_eq!(
            found, expected,
            "{operation}: weight is {found:?} instead of {expected:?}"
        );
    }
}

/// What a map's product is added to.
fn base(bias: Option<&[f32]>) -> Base<'_> {
    bias.map_or(Base::Nothing, Base::Row)
}

/// `x · weightᵀ + bias`, with work on each piece of a row while it is in cache.
pub(crate) fn product(
    shape: Shape,
    x: &[f32],
    weight: Matrix,
    bias: Option<&[f32]>,
    y: &mut [f32],
    finish: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    fits("linear", "output", y.len(), shape.rows * shape.output);
    if shape.rows <= FEW_ROWS {
        let instructions = simd::instructions();
        few_rows(shape, x, weight, y, instructions);
        for (row, values) in y.chunks_mut(shape.output.max(1)).enumerate() {
            if let Some(bias) = bias {
                let sums = AddTo {
                    sums: values,
                    more: bias,
                };
                simd::run(instructions, sums);
            }
            finish(row, 0, values);
        }
    } else {
        let product = Product::new([shape.operands(x, weight)], y, base(bias), finish);
        threads::together(&[&product]);
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

    /// Asks the processor for the piece of a row that is needed soon after this one, far away because it was used long ago; whether
    /// it lies inside the rows does not matter.
    #[inline(always)]
    pub(crate) fn fetch_after(self, row: usize, column: usize, length: usize) {
        /// Rows from here.
        const SOON: usize = 3;
        let row = row + SOON;
        simd::fetch(self.start.wrapping_add(row * self.width + column), length);
    }
}

/// What is done to a piece of a row of results while it is in cache: it is kept, and then something.
pub(crate) struct Finish<'a> {
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
        match (self.then, self.kept) {
            (Then::Activate(kind), Some(kept)) => {
                activation::activate_keeping(simd, kind, values, kept);
            }
            (Then::Activate(kind), None) => activation::activate_in_place(simd, kind, values),
            (then, kept) => {
                if let Some(kept) = kept {
                    kept.copy_from_slice(values);
                }
                if let Then::Gate(kind, gate) = then {
                    activation::gate_in_place(simd, kind, gate, values);
                }
            }
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
mod tests;
