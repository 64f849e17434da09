//! Feed-forward layers, plain and gated.
//!
//! Only the pre-activations of the hidden layer are saved; its output is recomputed in the backward pass, together with its
//! gradient.

use attentive_kernels::feed_forward::{DownProjection, gated_projection};
use attentive_kernels::linear::LinearShape;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::linear::{project, shape};
use super::operation::{FusedOperation, optional, run};
use super::projections::{ProjectedInput, Projection, backward};
use super::{
    buffer, contiguous, data, into_contiguous, matrix, optional_data, recycle, rows_and_width,
    single, tensor, with_unit_stride,
};
use crate::{Activation, LinearParameters};

/// `down(activation(gate(x)) · up(x))` of rows, or without a gate `down(activation(up(x)))`.
pub(crate) fn feed_forward(
    x: Tensor<2>,
    gate: Option<LinearParameters>,
    up: LinearParameters,
    down: LinearParameters,
    activation: Activation,
) -> Tensor<2> {
    let device = x.device();
    let feed_forward = FeedForward {
        activation,
        is_gated: gate.is_some(),
    };
    let (gate, gate_bias) = match gate {
        Some((weight, bias)) => (Some(weight), bias),
        None => (None, None),
    };
    let inputs = [
        x.into_dispatch(),
        optional(gate, &device),
        optional(gate_bias, &device),
        up.0.into_dispatch(),
        optional(up.1, &device),
        down.0.into_dispatch(),
        optional(down.1, &device),
    ];
    let [y] = run(feed_forward, inputs);
    Tensor::from_dispatch(y)
}

/// Inputs: x, and weight and bias of gate, up and down projection.
#[derive(Clone, Debug)]
struct FeedForward {
    activation: Activation,
    /// Explicit, because a gate of width zero is as empty as an absent one.
    is_gated: bool,
}

#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    /// The weights of gate, up and down projection.
    weights: [FlexTensor; 3],
    pre_activation: FlexTensor,
    /// The output of the up projection, if there is a gate.
    up: Option<FlexTensor>,
}

impl FusedOperation<7, 1> for FeedForward {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 7]) -> [FlexTensor; 1] {
        let [x, gate, gate_bias, up, up_bias, down, down_bias] = inputs;
        let hidden = if self.is_gated {
            let (gate, _) = project(&x, [&gate, &gate_bias], None, false);
            let (hidden, _) = self.gated(&x, &gate, [&up, &up_bias], false);
            recycle([gate]);
            hidden
        } else {
            project(&x, [&up, &up_bias], Some(self.activation), false).0
        };
        let (output, _) = project(&hidden, [&down, &down_bias], None, false);
        recycle([x, hidden]);
        [output]
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 7]) -> ([FlexTensor; 1], Saved) {
        let [x, gate, gate_bias, up, up_bias, down, down_bias] = inputs;
        let x = contiguous(&x);
        let weights = [&gate, &up, &down].map(with_unit_stride);
        let [gate, up, down] = &weights;
        let (hidden, pre_activation, projected) = if self.is_gated {
            let (gate, _) = project(&x, [gate, &gate_bias], None, false);
            let (hidden, projected) = self.gated(&x, &gate, [up, &up_bias], true);
            (hidden, Some(gate), projected)
        } else {
            let (hidden, pre_activation) = project(&x, [up, &up_bias], Some(self.activation), true);
            (hidden, pre_activation, None)
        };
        let (output, _) = project(&hidden, [down, &down_bias], None, false);
        recycle([hidden]);
        let saved = Saved {
            x,
            weights,
            pre_activation: pre_activation.expect("it was requested"),
            up: projected,
        };
        ([output], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        dys: [Option<FlexTensor>; 1],
        needs_gradient: [bool; 7],
    ) -> [Option<FlexTensor>; 7] {
        let dy = contiguous(&single(dys));
        let [x_needs, parameters_need @ ..] = needs_gradient;
        let [gate_needs, up_needs, down_needs] =
            [0, 2, 4].map(|weight| [parameters_need[weight], parameters_need[weight + 1]]);
        let [gate, up, down] = &saved.weights;
        let rows = rows_and_width(&dy).0;
        let [output, width] = [0, 1].map(|axis| down.layout().shape()[axis]);
        let down_backward = DownProjection {
            shape: LinearShape {
                rows,
                input: width,
                output,
            },
            dy: data(&dy),
            weight: matrix(down),
        };
        let kind = self.activation.kernel();
        // Saved activations are overwritten with their gradients; shared storage is copied first.
        let mut pre_activation = into_contiguous(saved.pre_activation);
        let mut result = buffer(rows * width);
        let up_projection = |dy| Projection {
            weight: up,
            dy,
            needs_gradient: up_needs,
        };
        let (hidden, projections) = match saved.up.map(into_contiguous) {
            // `result` gets the gradient of the pre-activations, whose storage the hidden layer takes.
            None => {
                down_backward.backward(kind, pre_activation.storage_mut(), &mut result);
                let dup = tensor(result, [rows, width]);
                (pre_activation, vec![up_projection(dup)])
            }
            // `result` gets the hidden layer.
            Some(mut projected) => {
                let operands = [pre_activation.storage_mut(), projected.storage_mut()];
                down_backward.backward_gated(kind, operands, &mut result);
                let gate_projection = Projection {
                    weight: gate,
                    dy: pre_activation,
                    needs_gradient: gate_needs,
                };
                let hidden = tensor(result, [rows, width]);
                (hidden, vec![gate_projection, up_projection(projected)])
            }
        };
        let hidden = ProjectedInput {
            x: hidden,
            needs_gradient: false,
            projections: vec![Projection {
                weight: down,
                dy,
                needs_gradient: down_needs,
            }],
        };
        let input = ProjectedInput {
            x: saved.x,
            needs_gradient: x_needs,
            projections,
        };
        let [mut hidden, mut input] = backward([hidden, input]);
        let [ddown, ddown_bias] = hidden.parameters.pop().expect("there is a down projection");
        let [dup, dup_bias] = input.parameters.pop().expect("there is an up projection");
        let [dgate, dgate_bias] = input.parameters.pop().unwrap_or_default();
        [
            input.dx, dgate, dgate_bias, dup, dup_bias, ddown, ddown_bias,
        ]
    }
}

impl FeedForward {
    /// `activation(gate) · up(x)`, and on request `up(x)`.
    fn gated(
        &self,
        x: &FlexTensor,
        gate: &FlexTensor,
        [up, bias]: [&FlexTensor; 2],
        save_up: bool,
    ) -> (FlexTensor, Option<FlexTensor>) {
        let (x, up, bias) = (contiguous(x), with_unit_stride(up), contiguous(bias));
        let shape = shape(&x, &up);
        let sizes = [shape.rows, shape.output];
        let mut y = buffer(shape.rows * shape.output);
        let mut projected = save_up.then(|| buffer(y.len()));
        gated_projection(
            shape,
            data(&x),
            (self.activation.kernel(), data(gate)),
            matrix(&up),
            optional_data(&bias),
            projected.as_deref_mut(),
            &mut y,
        );
        (tensor(y, sizes), projected.map(|it| tensor(it, sizes)))
    }
}
