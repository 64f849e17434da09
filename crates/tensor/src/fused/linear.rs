//! Linear layers: alone, with a fused activation, and the query, key and value projections of one input.

use attentive_kernels::activation as kernels;
use attentive_kernels::linear::{self, LinearShape};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, optional, run};
use super::projections::{ProjectedInput, Projection, backward};
use super::{
    buffer, contiguous, data, matrix, optional_data, recycle, rows_and_width, single, tensor,
    tensor_like, with_unit_stride,
};
use crate::{Activation, LinearParameters};

/// `activation(x · weightᵀ + bias)` of rows.
pub(crate) fn linear(
    x: Tensor<2>,
    (weight, bias): LinearParameters,
    activation: Option<Activation>,
) -> Tensor<2> {
    let device = x.device();
    let inputs = [
        x.into_dispatch(),
        weight.into_dispatch(),
        optional(bias, &device),
    ];
    let [y] = run(Linear(activation), inputs);
    Tensor::from_dispatch(y)
}

/// Query, key and value projections of the same rows.
pub(crate) fn linear_qkv(x: Tensor<2>, projections: [LinearParameters; 3]) -> [Tensor<2>; 3] {
    let device = x.device();
    let [[q, q_bias], [k, k_bias], [v, v_bias]] =
        projections.map(|(weight, bias)| [weight.into_dispatch(), optional(bias, &device)]);
    let inputs = [x.into_dispatch(), q, q_bias, k, k_bias, v, v_bias];
    run(LinearQkv, inputs).map(Tensor::from_dispatch)
}

/// Inputs: x, weight, bias.
#[derive(Clone, Debug)]
struct Linear(Option<Activation>);

#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    weight: FlexTensor,
    /// Saved if there is an activation.
    pre_activation: Option<FlexTensor>,
}

impl FusedOperation<3, 1> for Linear {
    type Saved = Saved;

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> [FlexTensor; 1] {
        let (y, _) = project(&x, [&weight, &bias], self.0, false);
        recycle([x]);
        [y]
    }

    fn forward_and_save(&self, [x, weight, bias]: [FlexTensor; 3]) -> ([FlexTensor; 1], Saved) {
        let (x, weight) = (contiguous(&x), with_unit_stride(&weight));
        let (y, pre_activation) = project(&x, [&weight, &bias], self.0, self.0.is_some());
        let saved = Saved {
            x,
            weight,
            pre_activation,
        };
        ([y], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        dys: [Option<FlexTensor>; 1],
        [x_needs, weight_needs, bias_needs]: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let mut dy = contiguous(&single(dys));
        if let (Some(kind), Some(input)) = (self.0, saved.pre_activation) {
            let mut gradient = buffer(data(&dy).len());
            kernels::activate_backward(kind.kernel(), data(&input), data(&dy), &mut gradient);
            let gradient = tensor_like(gradient, &dy);
            recycle([std::mem::replace(&mut dy, gradient), input]);
        }
        let projection = Projection {
            weight: &saved.weight,
            dy,
            needs_gradient: [weight_needs, bias_needs],
        };
        let input = ProjectedInput {
            x: saved.x,
            needs_gradient: x_needs,
            projections: vec![projection],
        };
        let [mut gradients] = backward([input]);
        let [dweight, dbias] = gradients.parameters.pop().expect("there is one projection");
        [gradients.dx, dweight, dbias]
    }
}

/// `activation(x · weightᵀ + bias)`, and on request the pre-activations.
pub(super) fn project(
    x: &FlexTensor,
    [weight, bias]: [&FlexTensor; 2],
    activation: Option<Activation>,
    save_pre_activation: bool,
) -> (FlexTensor, Option<FlexTensor>) {
    let (x, weight, bias) = (contiguous(x), with_unit_stride(weight), contiguous(bias));
    let shape = shape(&x, &weight);
    let sizes = [shape.rows, shape.output];
    let mut y = buffer(shape.rows * shape.output);
    let mut pre_activation = save_pre_activation.then(|| buffer(y.len()));
    let projection = linear::LinearForward {
        shape,
        weight: matrix(&weight),
        bias: optional_data(&bias),
        activation: activation.map(Activation::kernel),
        pre_activation: pre_activation.as_deref_mut(),
        y: &mut y,
    };
    linear::forward(data(&x), [projection]);
    (tensor(y, sizes), pre_activation.map(|it| tensor(it, sizes)))
}

pub(super) fn shape(x: &FlexTensor, weight: &FlexTensor) -> LinearShape {
    let (rows, input) = rows_and_width(x);
    let output = weight.layout().shape()[0];
    LinearShape {
        rows,
        input,
        output,
    }
}

/// Inputs: x, and weight and bias of each projection.
#[derive(Clone, Debug)]
struct LinearQkv;

impl FusedOperation<7, 3> for LinearQkv {
    /// The input, and the weights.
    type Saved = (FlexTensor, [FlexTensor; 3]);

    fn forward(&self, inputs: [FlexTensor; 7]) -> [FlexTensor; 3] {
        let (outputs, (x, _)) = self.forward_and_save(inputs);
        recycle([x]);
        outputs
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 7]) -> ([FlexTensor; 3], Self::Saved) {
        let [x, q, q_bias, k, k_bias, v, v_bias] = inputs;
        let x = contiguous(&x);
        let weights = [&q, &k, &v].map(with_unit_stride);
        let biases = [&q_bias, &k_bias, &v_bias].map(contiguous);
        let shapes = weights.each_ref().map(|weight| shape(&x, weight));
        let mut outputs = shapes.map(|shape| buffer(shape.rows * shape.output));
        let projections = (shapes.iter().zip(&weights)).zip(biases.iter().zip(&mut outputs));
        let projections = projections.map(|((shape, weight), (bias, y))| linear::LinearForward {
            shape: *shape,
            weight: matrix(weight),
            bias: optional_data(bias),
            activation: None,
            pre_activation: None,
            y,
        });
        linear::forward(data(&x), projections);
        let mut shapes = shapes.into_iter();
        let outputs = outputs.map(|y| {
            let shape = shapes.next().expect("one shape per projection");
            tensor(y, [shape.rows, shape.output])
        });
        (outputs, (x, weights))
    }

    fn backward(
        &self,
        (x, weights): Self::Saved,
        dys: [Option<FlexTensor>; 3],
        [x_needs, q, q_bias, k, k_bias, v, v_bias]: [bool; 7],
    ) -> [Option<FlexTensor>; 7] {
        let needs_gradient = [[q, q_bias], [k, k_bias], [v, v_bias]];
        let is_used = dys.each_ref().map(Option::is_some);
        let projections = dys.into_iter().zip(&weights).zip(needs_gradient);
        let projections = projections.filter_map(|((dy, weight), needs_gradient)| {
            Some(Projection {
                weight,
                dy: contiguous(&dy?),
                needs_gradient,
            })
        });
        let input = ProjectedInput {
            x,
            needs_gradient: x_needs,
            projections: projections.collect(),
        };
        let [gradients] = backward([input]);
        let mut parameters = gradients.parameters.into_iter();
        // Of a projection that the loss does not depend on, weight and bias still need gradients.
        let [[q, q_bias], [k, k_bias], [v, v_bias]] = [0, 1, 2].map(|i| match is_used[i] {
            true => parameters.next().expect("one per used projection"),
            false => zeros(&weights[i], needs_gradient[i]),
        });
        [gradients.dx, q, q_bias, k, k_bias, v, v_bias]
    }
}

/// Gradients of weight and bias where they are zero.
fn zeros(weight: &FlexTensor, [weight_needs, bias_needs]: [bool; 2]) -> [Option<FlexTensor>; 2] {
    let [output, input] = [0, 1].map(|axis| weight.layout().shape()[axis]);
    [
        weight_needs.then(|| tensor(vec![0.0; output * input], [output, input])),
        bias_needs.then(|| tensor(vec![0.0; output], [output])),
    ]
}
