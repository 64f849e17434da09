//! Linear layers with weights `[output, input]`, as checkpoints store them: alone, with an activation, query, key and value
//! projections of one input, and feed-forward layers.

use burn::tensor::Tensor;

use crate::exact_dims::ExactDims;
use crate::{Activation, activate, fused, gated};

/// The weight `[output, input]` and the bias `[output]` of a linear layer.
pub type LinearParameters = (Tensor<2>, Option<Tensor<1>>);

/// `x · weightᵀ + bias` along the last axis of `x`.
///
/// # Panics
/// When the last axis of `x` is not the weight's input size, or the bias is not of its output size.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let layer = (weight, bias);
    let (dims, x) = (output_dims("linear", &x, &layer), rows(x));
    let y = if fused::has_kernels(&x) {
        fused::linear(x, layer, None)
    } else {
        composed(x, layer)
    };
    y.reshape(ExactDims(dims))
}

/// `activation(x · weightᵀ + bias)` along the last axis of `x`.
///
/// # Panics
/// When the last axis of `x` is not the weight's input size, or the bias is not of its output size.
pub fn activated_linear<const D: usize>(
    activation: Activation,
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let layer = (weight, bias);
    let (dims, x) = (output_dims("activated_linear", &x, &layer), rows(x));
    let y = if fused::has_kernels(&x) {
        fused::linear(x, layer, Some(activation))
    } else {
        activate(activation, composed(x, layer))
    };
    y.reshape(ExactDims(dims))
}

/// A feed-forward layer along the last axis of `x`: `down(activation(gate(x)) · up(x))`, or without a gate
/// `down(activation(up(x)))`.
///
/// # Panics
/// When the last axis of `x` is not the input size of `gate` and `up`, or their outputs do not match each other or `down`.
pub fn feed_forward<const D: usize>(
    activation: Activation,
    x: Tensor<D>,
    gate: Option<LinearParameters>,
    up: LinearParameters,
    down: LinearParameters,
) -> Tensor<D> {
    let hidden = output_dims("feed_forward", &x, &up);
    if let Some(gate) = &gate {
        assert_eq!(
            output_dims("feed_forward", &x, gate),
            hidden,
            "feed_forward: gate {:?} does not match up {:?}",
            gate.0.dims(),
            up.0.dims()
        );
    }
    let dims = projected_dims("feed_forward", hidden, &down);
    let x = rows(x);
    let y = if fused::has_kernels(&x) {
        fused::feed_forward(x, gate, up, down, activation)
    } else {
        let hidden = match gate {
            Some(gate) => gated(activation, composed(x.clone(), gate), composed(x, up)),
            None => activate(activation, composed(x, up)),
        };
        composed(hidden, down)
    };
    y.reshape(ExactDims(dims))
}

/// The query, key and value projections of one input; the backward pass accumulates the gradient of the input inside the
/// matrix products.
///
/// # Panics
/// When the last axis of `x` is not the weights' input size, or a bias is not of its weight's output size.
pub fn linear_qkv<const D: usize>(
    x: Tensor<D>,
    projections: [LinearParameters; 3],
) -> [Tensor<D>; 3] {
    let dims = projections
        .each_ref()
        .map(|projection| output_dims("linear_qkv", &x, projection));
    let x = rows(x);
    let outputs = if fused::has_kernels(&x) {
        fused::linear_qkv(x, projections)
    } else {
        projections.map(|projection| composed(x.clone(), projection))
    };
    let mut dims = dims.into_iter();
    outputs.map(|output| output.reshape(ExactDims(dims.next().expect("one per projection"))))
}

/// The shape of the output. Panics where the operands do not match.
fn output_dims<const D: usize>(
    operation: &str,
    x: &Tensor<D>,
    layer: &LinearParameters,
) -> [usize; D] {
    projected_dims(operation, x.dims(), layer)
}

/// The output shape for an input of this shape.
fn projected_dims<const D: usize>(
    operation: &str,
    mut dims: [usize; D],
    (weight, bias): &LinearParameters,
) -> [usize; D] {
    let [output, input] = weight.dims();
    assert_eq!(
        dims[D - 1],
        input,
        "{operation}: input {dims:?} does not match weight {:?} [output, input]",
        [output, input]
    );
    if let Some(bias) = bias {
        assert_eq!(
            bias.dims(),
            [output],
            "{operation}: bias {:?} does not match weight {:?} [output, input]",
            bias.dims(),
            [output, input]
        );
    }
    dims[D - 1] = output;
    dims
}

/// Flattened to one matrix of rows: a batched product would broadcast the weight per batch.
fn rows<const D: usize>(x: Tensor<D>) -> Tensor<2> {
    let dims = x.dims();
    x.reshape(ExactDims([dims[..D - 1].iter().product(), dims[D - 1]]))
}

fn composed(x: Tensor<2>, (weight, bias): LinearParameters) -> Tensor<2> {
    let y = x.matmul(weight.transpose());
    match bias {
        Some(bias) => {
            let width = bias.dims()[0];
            y + bias.reshape(ExactDims([1, width]))
        }
        None => y,
    }
}
