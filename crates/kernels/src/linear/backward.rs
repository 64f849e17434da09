//! The backward pass: the gradients of weights, biases and inputs, summed over all layers that share an input.

use pulp::{Simd, WithSimd};

use super::{LinearShape, SharedRows};
use crate::Init;
use crate::elementwise;
use crate::gemm::{Gemm, Matrix, NO_EPILOGUE, SplitK};
use crate::partition::check_length;
use crate::simd::{self, Instructions};
use crate::threads::{self, TaskSet};

/// An input, and the linear layers (projections) applied to it.
#[derive(Debug)]
pub struct InputBackward<'a> {
    /// `[rows, input]`
    pub x: &'a [f32],
    /// Where the gradient of the input goes, if it is needed, and what it is initialized with: zeros or its contents.
    pub dx: Option<(&'a mut [f32], Init<'a>)>,
    /// All with the same rows and input width.
    pub projections: Vec<LinearBackward<'a>>,
}

/// The operands of the backward pass of `x · weightᵀ + bias`; gradients that are not needed are `None`.
#[derive(Debug)]
pub struct LinearBackward<'a> {
    /// The sizes.
    pub shape: LinearShape,
    /// The gradient of the output, `[rows, output]`.
    pub dy: &'a [f32],
    /// `[output, input]`
    pub weight: Matrix<'a>,
    /// Where the gradient of the weight goes.
    pub dweight: Option<&'a mut [f32]>,
    /// Where the gradient of the bias goes, `[output]`.
    pub dbias: Option<&'a mut [f32]>,
}

impl<'a> LinearBackward<'a> {
    fn dy(&self) -> Matrix<'a> {
        Matrix::new(self.dy, self.shape.rows, self.shape.output)
    }

    fn check(&self, x: usize, dx: Option<usize>) {
        let LinearShape {
            rows,
            input,
            output,
        } = self.shape;
        let length = |it: &Option<&mut [f32]>| it.as_ref().map(|it| it.len());
        let sizes = [
            ("gradient", Some(self.dy.len()), rows * output),
            ("input", Some(x), rows * input),
            ("gradient of the input", dx, rows * input),
            (
                "gradient of the weight",
                length(&self.dweight),
                output * input,
            ),
            ("gradient of the bias", length(&self.dbias), output),
        ];
        for (name, length, expected) in sizes {
            let length = length.unwrap_or(expected);
            check_length("linear_backward", name, length, expected);
        }
        self.shape.check_weight("linear_backward", self.weight);
    }
}

/// The gradients of some inputs and of the layers applied to them, all products in one job.
///
/// # Panics
/// When a slice does not match its shape, or a gradient is initialized with a bias.
pub fn backward<'a>(inputs: impl IntoIterator<Item = InputBackward<'a>>) {
    let mut sets: Vec<Box<dyn TaskSet + 'a>> = Vec::new();
    let mut bias_sums: Vec<Box<dyn TaskSet + 'a>> = Vec::new();
    for InputBackward { x, dx, projections } in inputs {
        assert!(
            !matches!(dx, Some((_, Init::Bias(_)))),
            "linear_backward: the gradient of an input is initialized with a bias"
        );
        for projection in &projections {
            projection.check(x.len(), dx.as_ref().map(|(dx, _)| dx.len()));
        }
        match dx {
            Some((dx, Init::Zero)) if projections.is_empty() => dx.fill(0.0),
            Some((dx, init)) if !projections.is_empty() => {
                let terms = projections.iter().map(|it| (it.dy(), it.weight));
                sets.push(Box::new(Gemm::new(terms, dx, init, NO_EPILOGUE)));
            }
            _ => (),
        }
        for projection in projections {
            let dy = projection.dy().transposed();
            let LinearShape {
                rows,
                input,
                output,
            } = projection.shape;
            if let Some(dweight) = projection.dweight {
                let x = Matrix::new(x, rows, input);
                sets.push(match SplitK::applies(output, rows, input) {
                    true => Box::new(SplitK::new(dy, x, dweight)),
                    false => Box::new(Gemm::new([(dy, x)], dweight, Init::Zero, NO_EPILOGUE)),
                });
            }
            if let Some(dbias) = projection.dbias {
                bias_sums.push(Box::new(ColumnSums::new(projection.dy, dbias)));
            }
        }
    }
    // The small tasks last, for load balance.
    sets.append(&mut bias_sums);
    let sets: Vec<&dyn TaskSet> = sets.iter().map(|set| &**set).collect();
    threads::run_all(&sets);
}

/// Columns per task.
const STRIP: usize = 128;
/// Rows summed before they are added to the total: blocked summation loses less precision.
const BLOCK_ROWS: usize = 64;
/// Prefetch distance in rows.
const PREFETCH_ROWS: usize = 4;

/// The column sums of some rows.
struct ColumnSums<'a> {
    rows: &'a [f32],
    width: usize,
    out: SharedRows,
    instructions: Instructions,
}

impl<'a> ColumnSums<'a> {
    fn new(rows: &'a [f32], sums: &'a mut [f32]) -> Self {
        let width = sums.len();
        Self {
            rows,
            width,
            out: SharedRows::of(sums, width),
            instructions: simd::instructions(),
        }
    }
}

impl TaskSet for ColumnSums<'_> {
    fn tasks(&self) -> usize {
        self.width.div_ceil(STRIP)
    }

    unsafe fn run(&self, task: usize) {
        let first = task * STRIP;
        let length = STRIP.min(self.width - first);
        // SAFETY: each task has columns of its own, and runs once.
        let sums = unsafe { self.out.segment(0, first, length) };
        let strip = StripSums {
            rows: self.rows,
            width: self.width,
            first,
            sums,
        };
        simd::run(self.instructions, strip);
    }
}

/// [`ColumnSums`] of one task.
struct StripSums<'a> {
    rows: &'a [f32],
    width: usize,
    first: usize,
    sums: &'a mut [f32],
}

impl WithSimd for StripSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let length = self.sums.len();
        self.sums.fill(0.0);
        for block in self.rows.chunks(BLOCK_ROWS * self.width) {
            let mut sums = [0.0; STRIP];
            for row in block.chunks_exact(self.width) {
                let next = PREFETCH_ROWS * self.width + self.first;
                simd::prefetch_l1(row.as_ptr().wrapping_add(next), length);
                let row = &row[self.first..self.first + length];
                elementwise::add_assign_with(simd, &mut sums[..length], row);
            }
            elementwise::add_assign_with(simd, self.sums, &sums[..length]);
        }
    }
}
