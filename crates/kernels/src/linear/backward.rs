//! The way back: for each map the gradients of its weight and bias, and for each input the sum of what its maps give.

use pulp::{Simd, WithSimd};

use super::{Rows, Shape};
use crate::Onto;
use crate::elementwise;
use crate::gemm::{Halves, Matrix, NOTHING, Product};
use crate::parts::fits;
use crate::simd::{self, Instructions};
use crate::threads::{self, Work};

/// An input, and the maps that were applied to it.
#[derive(Debug)]
pub struct Applied<'a> {
    /// `[rows, input]`
    pub x: &'a [f32],
    /// Where its gradient goes, and whether it is added to what is there; nobody may need it.
    pub dx: Option<(&'a mut [f32], Onto)>,
    /// All of the same rows and input.
    pub maps: Vec<Map<'a>>,
}

/// A map `x · weightᵀ + bias` on its way back; gradients that nobody needs are left out.
#[derive(Debug)]
pub struct Map<'a> {
    /// Its sizes.
    pub shape: Shape,
    /// The gradient of its result, `[rows, output]`.
    pub dy: &'a [f32],
    /// `[output, input]`
    pub weight: Matrix<'a>,
    /// Where the gradient of the weight goes.
    pub dweight: Option<&'a mut [f32]>,
    /// Where the gradient of the bias goes, `[output]`.
    pub dbias: Option<&'a mut [f32]>,
}

impl Map<'_> {
    fn check(&self, x: usize, dx: Option<usize>) {
        let Shape {
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
            fits("linear_backward", name, length, expected);
        }
        self.shape.fits_weight("linear_backward", self.weight);
    }
}

/// The gradients of some inputs and of the maps that were applied to them, all products in one job.
///
/// # Panics
/// When a slice does not fit its shape.
pub fn backward<'a>(inputs: impl IntoIterator<Item = Applied<'a>>) {
    let mut works: Vec<Box<dyn Work + 'a>> = Vec::new();
    let mut sums: Vec<Box<dyn Work + 'a>> = Vec::new();
    for Applied { x, dx, maps } in inputs {
        let slopes = |map: &Map<'a>| Matrix::new(map.dy, map.shape.rows, map.shape.output);
        for map in &maps {
            map.check(x.len(), dx.as_ref().map(|(dx, _)| dx.len()));
        }
        match dx {
            Some((dx, Onto::Replace)) if maps.is_empty() => dx.fill(0.0),
            Some((dx, onto)) if !maps.is_empty() => {
                let terms = maps.iter().map(|map| (slopes(map), map.weight));
                works.push(Box::new(Product::new(terms, dx, onto, NOTHING)));
            }
            _ => (),
        }
        for map in maps {
            if let Some(dweight) = map.dweight {
                let slopes = Matrix::new(map.dy, map.shape.rows, map.shape.output).transposed();
                let x = Matrix::new(x, map.shape.rows, map.shape.input);
                let Shape {
                    rows,
                    input,
                    output,
                } = map.shape;
                works.push(match Halves::fit(output, rows, input) {
                    true => Box::new(Halves::new(slopes, x, dweight)),
                    false => Box::new(Product::new([(slopes, x)], dweight, Onto::Replace, NOTHING)),
                });
            }
            if let Some(dbias) = map.dbias {
                sums.push(Box::new(ColumnSums::new(map.dy, dbias)));
            }
        }
    }
    // The small ones last: they fill the time until all are done.
    works.append(&mut sums);
    let works: Vec<&dyn Work> = works.iter().map(|work| &**work).collect();
    threads::together(&works);
}

/// Columns that a task sums.
const STRIP: usize = 128;
/// Rows that are summed before they are added to the sums of all rows: long sums lose less this way.
const RUN: usize = 64;
/// Rows between the one that is summed and the one that is asked for.
const AHEAD: usize = 4;

/// The sums of the columns of some rows.
struct ColumnSums<'a> {
    rows: &'a [f32],
    width: usize,
    target: Rows,
    instructions: Instructions,
}

impl<'a> ColumnSums<'a> {
    fn new(rows: &'a [f32], sums: &'a mut [f32]) -> Self {
        let width = sums.len();
        Self {
            rows,
            width,
            target: Rows::of(sums, width),
            instructions: simd::instructions(),
        }
    }
}

impl Work for ColumnSums<'_> {
    fn tasks(&self) -> usize {
        self.width.div_ceil(STRIP)
    }

    unsafe fn run(&self, task: usize) {
        let first = task * STRIP;
        let length = STRIP.min(self.width - first);
        // SAFETY: each task has columns of its own, and is done once.
        let sums = unsafe { self.target.piece(0, first, length) };
        let strip = Strip {
            rows: self.rows,
            width: self.width,
            first,
            sums,
        };
        simd::run(self.instructions, strip);
    }
}

struct Strip<'a> {
    rows: &'a [f32],
    width: usize,
    first: usize,
    sums: &'a mut [f32],
}

impl WithSimd for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let length = self.sums.len();
        self.sums.fill(0.0);
        for run in self.rows.chunks(RUN * self.width) {
            let mut sums = [0.0; STRIP];
            for row in run.chunks_exact(self.width) {
                let ahead = AHEAD * self.width + self.first;
                simd::fetch(row.as_ptr().wrapping_add(ahead), length);
                let row = &row[self.first..self.first + length];
                elementwise::add_to(simd, &mut sums[..length], row);
            }
            elementwise::add_to(simd, self.sums, &sums[..length]);
        }
    }
}
