//! Linear maps with the weight kept `[output, input]`, as checkpoints store it: alone, with an activation, three of one
//! input, and two or three as a feed-forward layer.

use burn::tensor::Tensor;

use crate::exactly::Exactly;
use crate::{Activation, activate, fused, gated};

/// A linear map's weight `[output, input]` and bias `[output]`.
pub type LinearMap = (Tensor<2>, Option<Tensor<1>>);

/// `x · weightᵀ + bias` along the last axis of `x`.
///
/// # Panics
/// When the last axis of `x` is not the weight's input size, or the bias is not of its output size.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let map = (weight, bias);
    let (dims, x) = (dims_after("linear", &x, &map), rows(x));
    let y = if fused::has_kernels(&x) {
        fused::linear(x, map, None)
    } else {
        composed(x, map)
    };
    y.reshape(Exactly(dims))
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
    let map = (weight, bias);
    let (dims, x) = (dims_after("activated_linear", &x, &map), rows(x));
    let y = if fused::has_kernels(&x) {
        fused::linear(x, map, Some(activation))
    } else {
        activate(activation, composed(x, map))
    };
    y.reshape(Exactly(dims))
}

/// A feed-forward layer along the last axis of `x`: `down(activation(gate(x)) · up(x))`, or without a gate
/// `down(activation(up(x)))`.
///
/// # Panics
/// When the last axis of `x` is not the first maps' input size, or what they give does not fit each other or `down`.
pub fn feed_forward<const D: usize>(
    activation: Activation,
    x: Tensor<D>,
    gate: Option<LinearMap>,
    up: LinearMap,
    down: LinearMap,
) -> Tensor<D> {
    let hidden = dims_after("feed_forward", &x, &up);
    if let Some(gate) = &gate {
        assert_eq!(
            dims_after("feed_forward", &x, gate),
            hidden,
            "feed_forward: gate {:?} does not fit up {:?}",
            gate.0.dims(),
            up.0.dims()
        );
    }
    let dims = dims_of("feed_forward", hidden, &down);
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
    y.reshape(Exactly(dims))
}

/// Three maps of one input, as attention makes queries, keys and values: the gradients of the input are added up inside the
/// products.
///
/// # Panics
/// When the last axis of `x` is not the weights' input size, or a bias is not of its weight's output size.
pub fn three_linears<const D: usize>(x: Tensor<D>, maps: [LinearMap; 3]) -> [Tensor<D>; 3] {
    let dims = maps
        .each_ref()
        .map(|map| dims_after("three_linears", &x, map));
    let x = rows(x);
    let outputs = if fused::has_kernels(&x) {
        fused::three_linears(x, maps)
    } else {
        maps.map(|map| composed(x.clone(), map))
    };
    let mut dims = dims.into_iter();
    outputs.map(|output| output.reshape(Exactly(dims.next().expect("one per map"))))
}

/// The sizes of the result; panics where the operands do not fit.
fn dims_after<const D: usize>(operation: &str, x: &Tensor<D>, map: &LinearMap) -> [usize; D] {
    dims_of(operation, x.dims(), map)
}

/// The sizes after a map of an input with these sizes.
fn dims_of<const D: usize>(
    operation: &str,
    mut dims: [usize; D],
    (weight, bias): &LinearMap,
) -> [usize; D] {
    let [output, input] = weight.dims();
    assert_eq!(
        dims[D - 1],
        input,
        "{operation}: input {dims:?} does not fit weight {:?} [output, input]",
        [output, input]
    );
    if let Some(bias) = bias {
        assert_eq!(
            bias.dims(),
            [output],
            "{operation}: bias {:?} does not fit weight {:?} [output, input]",
            bias.dims(),
            [output, input]
        );
    }
    dims[D - 1] = output;
    dims
}

/// One flat matrix of all rows: a batched product would broadcast the weight per batch.
fn rows<const D: usize>(x: Tensor<D>) -> Tensor<2> {
    let dims = x.dims();
    x.reshape(Exactly([dims[..D - 1].iter().product(), dims[D - 1]]))
}

fn composed(x: Tensor<2>, (weight, bias): LinearMap) -> Tensor<2> {
    let y = x.matmul(weight.transpose());
    match bias {
        Some(bias) => {
            let width = bias.dims()[0];
            y + bias.reshape(Exactly([1, width]))
        }
        None => y,
    }
}
