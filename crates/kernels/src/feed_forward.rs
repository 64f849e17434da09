//! What lies between the two products of a feed-forward layer, done while the first of them is in cache: the gate on the
//! way there, and on the way back all that the activation has to do with.

use pulp::{Simd, WithSimd};

use crate::Onto;
use crate::activation::{self, Activation};
use crate::gemm::{Matrix, gemm};
use crate::linear::{Finish, Rows, Shape, Then, product};
use crate::parts::fits;
use crate::simd;

/// `y = activation(gate) · (x · upᵀ + bias)`, given the gate's product.
///
/// With `kept`, the second factor is written there, for the backward pass.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn gated_product(
    shape: Shape,
    x: &[f32],
    (kind, gate): (Activation, &[f32]),
    up: Matrix,
    bias: Option<&[f32]>,
    kept: Option<&mut [f32]>,
    y: &mut [f32],
) {
    let results = shape.rows * shape.output;
    fits("gated_product", "input", x.len(), shape.rows * shape.input);
    shape.fits_weight("gated_product", up);
    fits("gated_product", "gate", gate.len(), results);
    fits("gated_product", "output", y.len(), results);
    let saved = kept.as_ref().map_or(results, |it| it.len());
    fits("gated_product", "saved", saved, results);
    let biases = bias.map_or(shape.output, <[f32]>::len);
    fits("gated_product", "bias", biases, shape.output);
    let kept = kept.map(|kept| Rows::of(kept, shape.output));
    let instructions = simd::instructions();
    product(shape, x, up, bias, y, |row, column, values| {
        let start = row * shape.output + column;
        if let Some(rows) = kept {
            rows.fetch_after(row, column, values.len());
        }
        let kernel = Finish {
            // SAFETY: the product finishes each piece of a row once, and the saved rows are as wide as the results.
            kept: kept.map(|it| unsafe { it.piece(row, column, values.len()) }),
            then: Then::Gate(kind, &gate[start..start + values.len()]),
            values,
        };
        simd::run(instructions, kernel);
    });
}

/// The second map of a feed-forward layer on its way back: `rows` of `output` slopes, a weight `[output, input]`.
#[derive(Clone, Copy, Debug)]
pub struct Down<'a> {
    /// Its sizes; `input` is the hidden width.
    pub shape: Shape,
    /// The gradient of its result.
    pub dy: &'a [f32],
    /// Its weight.
    pub weight: Matrix<'a>,
}

impl Down<'_> {
    /// Through `down(activation(before))`: `slopes` becomes the gradient of `before`, and `before` becomes what `down` was
    /// applied to, which its own gradient needs and nobody had to keep.
    ///
    /// # Panics
    /// When a slice does not fit the shape.
    pub fn backward(&self, kind: Activation, before: &mut [f32], slopes: &mut [f32]) {
        let width = self.shape.input;
        fits(
            "feed_forward",
            "saved",
            before.len(),
            self.shape.rows * width,
        );
        let before = Rows::of(before, width);
        let instructions = simd::instructions();
        self.product(slopes, |row, column, slopes| {
            before.fetch_after(row, column, slopes.len());
            // SAFETY: the product finishes each piece of a row once, and the saved rows are as wide as the results.
            let before = unsafe { before.piece(row, column, slopes.len()) };
            simd::run(
                instructions,
                Back {
                    kind,
                    before,
                    slopes,
                },
            );
        });
    }

    /// Through `down(activation(gate) · up)`: `gate` and `up` become their gradients, and `hidden` becomes what `down` was
    /// applied to.
    ///
    /// # Panics
    /// When a slice does not fit the shape.
    pub fn backward_gated(
        &self,
        kind: Activation,
        [gate, up]: [&mut [f32]; 2],
        hidden: &mut [f32],
    ) {
        let width = self.shape.input;
        fits("feed_forward", "gate", gate.len(), self.shape.rows * width);
        fits("feed_forward", "up", up.len(), self.shape.rows * width);
        let (gate, up) = (Rows::of(gate, width), Rows::of(up, width));
        let instructions = simd::instructions();
        self.product(hidden, |row, column, slopes| {
            for rows in [gate, up] {
                rows.fetch_after(row, column, slopes.len());
            }
            // SAFETY: as above, for both.
            let [gate, up] = [gate, up].map(|it| unsafe { it.piece(row, column, slopes.len()) });
            let kernel = BackGated {
                kind,
                gate,
                up,
                slopes,
            };
            simd::run(instructions, kernel);
        });
    }

    /// The gradient of what the map was applied to.
    fn product(&self, out: &mut [f32], finish: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let Shape { rows, output, .. } = self.shape;
        self.shape.fits_weight("feed_forward", self.weight);
        let slopes = Matrix::new(self.dy, rows, output);
        gemm(slopes, self.weight, out, Onto::Replace, finish);
    }
}

struct Back<'a> {
    kind: Activation,
    before: &'a mut [f32],
    slopes: &'a mut [f32],
}

impl WithSimd for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        activation::back_in_place(simd, self.kind, self.before, self.slopes);
    }
}

struct BackGated<'a> {
    kind: Activation,
    gate: &'a mut [f32],
    up: &'a mut [f32],
    slopes: &'a mut [f32],
}

impl WithSimd for BackGated<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        activation::back_gated_in_place(simd, self.kind, [self.gate, self.up], self.slopes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::{KINDS, naive};
    use crate::checks::{close, each_way, few, numbers, wide};
    use crate::linear::forward_naive;
    use proptest::prelude::*;

    /// `dy · weight`, one number at a time.
    fn through(shape: Shape, dy: &[f32], weight: &[f32]) -> Vec<f64> {
        let sum = |row: usize, column: usize| -> f64 {
            let term = |i: usize| {
                f64::from(dy[row * shape.output + i]) * f64::from(weight[i * shape.input + column])
            };
            (0..shape.output).map(term).sum()
        };
        (0..shape.rows * shape.input)
            .map(|i| sum(i / shape.input, i % shape.input))
            .collect()
    }

    /// Weights whose sums over so many terms are about as large as one term.
    fn small(mut weight: Vec<f32>, terms: usize) -> Vec<f32> {
        weight.iter_mut().for_each(|it| *it /= terms as f32);
        weight
    }

    fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a * b).collect()
    }

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn equals_its_twin(
            rows in prop_oneof![0usize..9, Just(97)],
            hidden in prop_oneof![1usize..20, Just(129)],
            width in prop_oneof![1usize..20, Just(65)],
            kind in prop::sample::select(KINDS.to_vec()),
            seed: u64,
        ) {
            let count = rows * hidden;
            let first = Shape { rows, input: width, output: hidden };
            let x = numbers(seed, rows * width);
            let (up, bias, gate) = (small(numbers(seed ^ 1, hidden * width), width), numbers(seed ^ 2, hidden), numbers(seed ^ 3, count));
            let factor = forward_naive(first, &x, &up, Some(&bias));
            let value = |x: &f64| naive::value(kind, *x);
            let slope = |x: &f64| naive::slope(kind, *x);
            let opened: Vec<f64> = wide(&gate).iter().map(value).collect();
            each_way(|| {
                let (mut y, mut kept) = (vec![f32::NAN; count], vec![f32::NAN; count]);
                gated_product(first, &x, (kind, &gate), Matrix::new(&up, hidden, width), Some(&bias), Some(&mut kept), &mut y);
                close("kept", &kept, &factor, 1e-5);
                close("gated", &y, &product(&opened, &factor), 1e-5);
            });

            let shape = Shape { rows, input: hidden, output: width };
            let weight = small(numbers(seed ^ 4, width * hidden), width);
            let dy = numbers(seed ^ 5, rows * width);
            let down = Down { shape, dy: &dy, weight: Matrix::new(&weight, width, hidden) };
            let slopes = through(shape, &dy, &weight);
            let up = numbers(seed ^ 6, count);
            each_way(|| {
                let (mut before, mut out) = (gate.clone(), vec![f32::NAN; count]);
                down.backward(kind, &mut before, &mut out);
                close("activated", &before, &opened, 1e-5);
                let steep: Vec<f64> = wide(&gate).iter().map(slope).collect();
                close("slopes", &out, &product(&slopes, &steep), 1e-5);

                let (mut dgate, mut dup, mut hidden) = (gate.clone(), up.clone(), vec![f32::NAN; count]);
                down.backward_gated(kind, [&mut dgate, &mut dup], &mut hidden);
                close("hidden", &hidden, &product(&opened, &wide(&up)), 1e-5);
                close("dup", &dup, &product(&slopes, &opened), 1e-5);
                close("dgate", &dgate, &product(&product(&slopes, &steep), &wide(&up)), 1e-5);
            });
        }
    }
}
