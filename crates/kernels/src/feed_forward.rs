//! Fused feed-forward layers: the gate in the epilogue of the up projection, and the backward pass of activation and gate in the
//! epilogue of the down projection's.

use pulp::{Simd, WithSimd};

use crate::Init;
use crate::activation::{self, Activation};
use crate::gemm::{Matrix, gemm};
use crate::linear::{Epilogue, EpilogueOp, LinearShape, SharedRows, linear_with_epilogue};
use crate::partition::check_length;
use crate::simd;

/// `y = activation(gate) · (x · upᵀ + bias)`, given the gate's projection.
///
/// The up projection is written to `saved`, if present, for the backward pass.
///
/// # Panics
/// When a slice does not match the shape.
pub fn gated_projection(
    shape: LinearShape,
    x: &[f32],
    (kind, gate): (Activation, &[f32]),
    up: Matrix,
    bias: Option<&[f32]>,
    saved: Option<&mut [f32]>,
    y: &mut [f32],
) {
    let outputs = shape.rows * shape.output;
    check_length(
        "gated_projection",
        "input",
        x.len(),
        shape.rows * shape.input,
    );
    shape.check_weight("gated_projection", up);
    check_length("gated_projection", "gate", gate.len(), outputs);
    check_length("gated_projection", "output", y.len(), outputs);
    let saved_length = saved.as_ref().map_or(outputs, |it| it.len());
    check_length("gated_projection", "saved", saved_length, outputs);
    let biases = bias.map_or(shape.output, <[f32]>::len);
    check_length("gated_projection", "bias", biases, shape.output);
    let saved = saved.map(|it| SharedRows::of(it, shape.output));
    let instructions = simd::instructions();
    linear_with_epilogue(shape, x, up, bias, y, |row, column, values| {
        let start = row * shape.output + column;
        if let Some(rows) = saved {
            rows.prefetch_after(row, column, values.len());
        }
        let kernel = Epilogue {
            // SAFETY: the epilogue is called once for each segment of a row, and the saved rows are as wide as the outputs.
            saved: saved.map(|it| unsafe { it.segment(row, column, values.len()) }),
            op: EpilogueOp::Gate(kind, &gate[start..start + values.len()]),
            values,
        };
        simd::run(instructions, kernel);
    });
}

/// The operands of a down projection's backward pass.
#[derive(Clone, Copy, Debug)]
pub struct DownProjection<'a> {
    /// The sizes; `input` is the hidden width.
    pub shape: LinearShape,
    /// The gradient of the output, `[rows, output]`.
    pub dy: &'a [f32],
    /// `[output, input]`
    pub weight: Matrix<'a>,
}

impl DownProjection<'_> {
    /// The backward pass of `down(activation(pre_activation))`: writes the gradient of `pre_activation` to `gradient`, and replaces
    /// `pre_activation` by the recomputed hidden activations, which the gradient of the weight needs.
    ///
    /// # Panics
    /// When a slice does not match the shape.
    pub fn backward(&self, kind: Activation, pre_activation: &mut [f32], gradient: &mut [f32]) {
        let width = self.shape.input;
        check_length(
            "feed_forward",
            "pre_activation",
            pre_activation.len(),
            self.shape.rows * width,
        );
        let pre_activation = SharedRows::of(pre_activation, width);
        let instructions = simd::instructions();
        self.hidden_gradient(gradient, |row, column, gradient| {
            pre_activation.prefetch_after(row, column, gradient.len());
            // SAFETY: the epilogue is called once for each segment of a row, and the saved rows are as wide as the outputs.
            let pre_activation = unsafe { pre_activation.segment(row, column, gradient.len()) };
            let kernel = ActivationBackward {
                kind,
                pre_activation,
                gradient,
            };
            simd::run(instructions, kernel);
        });
    }

    /// The backward pass of `down(activation(gate) · up)`: replaces `gate` and `up` by their gradients, and writes the recomputed
    /// hidden activations to `hidden`.
    ///
    /// # Panics
    /// When a slice does not match the shape.
    pub fn backward_gated(
        &self,
        kind: Activation,
        [gate, up]: [&mut [f32]; 2],
        hidden: &mut [f32],
    ) {
        let width = self.shape.input;
        check_length("feed_forward", "gate", gate.len(), self.shape.rows * width);
        check_length("feed_forward", "up", up.len(), self.shape.rows * width);
        let (gate, up) = (SharedRows::of(gate, width), SharedRows::of(up, width));
        let instructions = simd::instructions();
        self.hidden_gradient(hidden, |row, column, gradient| {
            for rows in [gate, up] {
                rows.prefetch_after(row, column, gradient.len());
            }
            let length = gradient.len();
            // SAFETY: as above, for both.
            let [gate, up] = [gate, up].map(|it| unsafe { it.segment(row, column, length) });
            let kernel = GatedBackward {
                kind,
                gate,
                up,
                gradient,
            };
            simd::run(instructions, kernel);
        });
    }

    /// The gradient of the hidden activations, with an epilogue.
    fn hidden_gradient(&self, out: &mut [f32], epilogue: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let LinearShape { rows, output, .. } = self.shape;
        self.shape.check_weight("feed_forward", self.weight);
        let dy = Matrix::new(self.dy, rows, output);
        gemm(dy, self.weight, out, Init::Zero, epilogue);
    }
}

struct ActivationBackward<'a> {
    kind: Activation,
    pre_activation: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl WithSimd for ActivationBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        activation::backward_in_place(simd, self.kind, self.pre_activation, self.gradient);
    }
}

struct GatedBackward<'a> {
    kind: Activation,
    gate: &'a mut [f32],
    up: &'a mut [f32],
    gradient: &'a mut [f32],
}

impl WithSimd for GatedBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let operands = [self.gate, self.up];
        activation::gated_backward_in_place(simd, self.kind, operands, self.gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::{KINDS, naive};
    use crate::checks::{few_cases, on_each_instruction_set, random_values, to_f64};
    use crate::linear;
    use attentive_testing::{Scale, assert_close};
    use proptest::prelude::*;

    /// `dy · weight`, one element at a time.
    fn input_gradient(shape: LinearShape, dy: &[f32], weight: &[f32]) -> Vec<f64> {
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

    /// Scales weights so that sums over this many terms are about as large as one term.
    fn scaled_down(mut weight: Vec<f32>, terms: usize) -> Vec<f32> {
        weight.iter_mut().for_each(|it| *it /= terms as f32);
        weight
    }

    fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a * b).collect()
    }

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn matches_the_naive_version(
            rows in prop_oneof![0usize..9, Just(97)],
            hidden in prop_oneof![1usize..20, Just(129)],
            width in prop_oneof![1usize..20, Just(65)],
            kind in prop::sample::select(KINDS.to_vec()),
            seed: u64,
        ) {
            let count = rows * hidden;
            let first = LinearShape { rows, input: width, output: hidden };
            let x = random_values(seed, rows * width);
            let (up, bias, gate) = (scaled_down(random_values(seed ^ 1, hidden * width), width), random_values(seed ^ 2, hidden), random_values(seed ^ 3, count));
            let factor = linear::naive::forward(first, &x, &up, Some(&bias));
            let value = |x: &f64| naive::value(kind, *x);
            let derivative = |x: &f64| naive::derivative(kind, *x);
            let activated: Vec<f64> = to_f64(&gate).iter().map(value).collect();
            on_each_instruction_set(|| {
                let (mut y, mut saved) = (vec![f32::NAN; count], vec![f32::NAN; count]);
                gated_projection(first, &x, (kind, &gate), Matrix::new(&up, hidden, width), Some(&bias), Some(&mut saved), &mut y);
                assert_close("saved", &saved, &factor, Scale::EachOrOne, 1e-5);
                assert_close("gated", &y, &product(&activated, &factor), Scale::EachOrOne, 1e-5);
            });

            let shape = LinearShape { rows, input: hidden, output: width };
            let weight = scaled_down(random_values(seed ^ 4, width * hidden), width);
            let dy = random_values(seed ^ 5, rows * width);
            let down = DownProjection { shape, dy: &dy, weight: Matrix::new(&weight, width, hidden) };
            let hidden_gradient = input_gradient(shape, &dy, &weight);
            let up = random_values(seed ^ 6, count);
            on_each_instruction_set(|| {
                let (mut pre_activation, mut out) = (gate.clone(), vec![f32::NAN; count]);
                down.backward(kind, &mut pre_activation, &mut out);
                assert_close("activated", &pre_activation, &activated, Scale::EachOrOne, 1e-5);
                let derivatives: Vec<f64> = to_f64(&gate).iter().map(derivative).collect();
                assert_close("gradient", &out, &product(&hidden_gradient, &derivatives), Scale::EachOrOne, 1e-5);

                let (mut dgate, mut dup, mut hidden) = (gate.clone(), up.clone(), vec![f32::NAN; count]);
                down.backward_gated(kind, [&mut dgate, &mut dup], &mut hidden);
                assert_close("hidden", &hidden, &product(&activated, &to_f64(&up)), Scale::EachOrOne, 1e-5);
                assert_close("dup", &dup, &product(&hidden_gradient, &activated), Scale::EachOrOne, 1e-5);
                assert_close("dgate", &dgate, &product(&product(&hidden_gradient, &derivatives), &to_f64(&up)), Scale::EachOrOne, 1e-5);
            });
        }
    }
}
