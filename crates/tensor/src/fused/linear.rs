//! Linear layers: alone, with a fused activation, and the query, key and value projections of one input.

use attentive_kernels::Init;
use attentive_kernels::activation as kernels;
use attentive_kernels::linear::{self, LinearShape};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::activation::kernel;
use super::outputs::{GradientSlots, record_outputs};
use super::{
    buffer, contiguous, data, matrix, optional_data, record, recycle, rows_and_width, tensor,
    with_unit_stride,
};
use crate::Activation;

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

pub(super) fn shape(x: &FlexTensor, weight: &FlexTensor) -> LinearShape {
    let (rows, input) = rows_and_width(x);
    let output = weight.layout().shape()[0];
    LinearShape {
        rows,
        input,
        output,
    }
}

/// `x · weightᵀ + bias`; an empty bias is none.
pub(super) fn forward(x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor) -> FlexTensor {
    forward_with_activation(x, weight, bias, None, false).0
}

/// `activation(x · weightᵀ + bias)`, and on request the pre-activations.
pub(super) fn forward_with_activation(
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: &FlexTensor,
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
        activation: activation.map(kernel),
        pre_activation: pre_activation.as_deref_mut(),
        y: &mut y,
    };
    linear::forward(data(&x), [projection]);
    (tensor(y, sizes), pre_activation.map(|it| tensor(it, sizes)))
}

/// The query, key and value projections, given as weight and bias, of one input.
pub(super) fn qkv(x: &FlexTensor, projections: [[&FlexTensor; 2]; 3]) -> [FlexTensor; 3] {
    let x = contiguous(x);
    let projections =
        projections.map(|[weight, bias]| [with_unit_stride(weight), contiguous(bias)]);
    let shapes = projections.each_ref().map(|[weight, _]| shape(&x, weight));
    let mut results = shapes.map(|shape| buffer(shape.rows * shape.output));
    let kernel_projections = projections.iter().zip(shapes).zip(&mut results);
    let kernel_projections =
        kernel_projections.map(|(([weight, bias], shape), y)| linear::LinearForward {
            shape,
            weight: matrix(weight),
            bias: optional_data(bias),
            activation: None,
            pre_activation: None,
            y,
        });
    linear::forward(data(&x), kernel_projections);
    let mut shapes = shapes.into_iter();
    results.map(|y| {
        let shape = shapes.next().expect("one shape per projection");
        tensor(y, [shape.rows, shape.output])
    })
}

/// A projection in the backward pass: its weight, the gradient of its output, and the nodes of weight and bias.
pub(super) struct TrackedProjection<'a> {
    pub weight: &'a FlexTensor,
    pub dy: FlexTensor,
    /// Of weight and bias.
    pub parents: [Option<NodeId>; 2],
}

/// An input in the backward pass, its node, and the projections that were applied to it.
pub(super) struct TrackedInput<'a> {
    pub x: FlexTensor,
    pub parent: Option<NodeId>,
    pub projections: Vec<TrackedProjection<'a>>,
}

/// Registers the gradients of inputs and of the projections applied to them. All matrix products are one job, which
/// accumulates the gradient of each input.
pub(super) fn backward<const N: usize>(inputs: [TrackedInput; N], gradients: &mut Gradients) {
    let mut buffers = inputs.each_ref().map(TrackedInput::gradient_buffers);
    let work = inputs.iter().zip(&mut buffers);
    linear::backward(work.map(|(input, buffers)| input.kernel_arguments(buffers)));
    for (input, buffers) in inputs.into_iter().zip(buffers) {
        input.register(buffers, gradients);
    }
}

/// Buffers for the gradients of an input, and of weight and bias of each of its projections.
struct GradientBuffers {
    dx: Option<Vec<f32>>,
    projections: Vec<[Option<Vec<f32>>; 2]>,
}

impl TrackedInput<'_> {
    fn gradient_buffers(&self) -> GradientBuffers {
        let (rows, width) = rows_and_width(&self.x);
        let of_projection = |projection: &TrackedProjection| {
            let shape = shape(&self.x, projection.weight);
            let sizes = [shape.output * shape.input, shape.output];
            std::array::from_fn(|i| projection.parents[i].map(|_| buffer(sizes[i])))
        };
        GradientBuffers {
            dx: self.parent.map(|_| buffer(rows * width)),
            projections: self.projections.iter().map(of_projection).collect(),
        }
    }

    fn kernel_arguments<'a>(
        &'a self,
        buffers: &'a mut GradientBuffers,
    ) -> linear::InputBackward<'a> {
        let dx = buffers.dx.as_deref_mut();
        let projections = self.projections.iter().zip(&mut buffers.projections);
        let projections =
            projections.map(|(projection, [dweight, dbias])| linear::LinearBackward {
                shape: shape(&self.x, projection.weight),
                dy: data(&projection.dy),
                weight: matrix(projection.weight),
                dweight: dweight.as_deref_mut(),
                dbias: dbias.as_deref_mut(),
            });
        linear::InputBackward {
            x: data(&self.x),
            dx: dx.map(|dx| (dx, Init::Zero)),
            projections: projections.collect(),
        }
    }

    fn register(self, buffers: GradientBuffers, gradients: &mut Gradients) {
        for (projection, buffers) in self.projections.into_iter().zip(buffers.projections) {
            let shape = projection.weight.layout().shape();
            let shapes = [vec![shape[0], shape[1]], vec![shape[0]]];
            for ((parent, gradient), shape) in projection.parents.iter().zip(buffers).zip(shapes) {
                if let (Some(parent), Some(gradient)) = (parent, gradient) {
                    gradients.register::<Flex>(*parent, tensor(gradient, shape));
                }
            }
            recycle([projection.dy]);
        }
        if let (Some(parent), Some(dx)) = (self.parent, buffers.dx) {
            let (rows, width) = rows_and_width(&self.x);
            gradients.register::<Flex>(parent, tensor(dx, [rows, width]));
        }
        recycle([self.x]);
    }
}

/// For a projection whose output the loss does not depend on: the nodes of its weight and bias still expect gradients.
fn register_zeros(weight: &FlexTensor, parents: [Option<NodeId>; 2], gradients: &mut Gradients) {
    let shape = weight.layout().shape();
    let shapes = [vec![shape[0], shape[1]], vec![shape[0]]];
    for (parent, shape) in parents.into_iter().zip(shapes) {
        if let Some(parent) = parent {
            let zeros = vec![0.0; shape.iter().product()];
            gradients.register::<Flex>(parent, tensor(zeros, shape));
        }
    }
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    weight: Tracked<C>,
    bias: Tracked<C>,
    activation: Option<Activation>,
) -> Tracked<C> {
    let (x, x_node) = x.into_parts();
    let (weight, weight_node) = weight.into_parts();
    let (bias, bias_node) = bias.into_parts();
    let (x, weight) = (contiguous(&x), with_unit_stride(&weight));
    let (output, pre_activation) =
        forward_with_activation(&x, &weight, &bias, activation, activation.is_some());
    let nodes = [x_node, weight_node, bias_node];
    record::<C, _, 3>(LinearBackward, nodes, output, || SavedLinear {
        x,
        weight,
        activation: activation.zip(pre_activation),
    })
}

#[derive(Debug)]
struct LinearBackward;

#[derive(Clone, Debug)]
struct SavedLinear {
    x: FlexTensor,
    weight: FlexTensor,
    activation: Option<(Activation, FlexTensor)>,
}

impl Backward<Flex, 3> for LinearBackward {
    type State = SavedLinear;

    fn backward(self, ops: Ops<SavedLinear, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let mut dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        let SavedLinear {
            x,
            weight,
            activation,
        } = ops.state;
        if let Some((kind, pre_activation)) = activation {
            let mut gradient = buffer(data(&dy).len());
            kernels::activate_backward(
                kernel(kind),
                data(&pre_activation),
                data(&dy),
                &mut gradient,
            );
            let shape = dy.layout().shape().clone();
            recycle([std::mem::replace(&mut dy, tensor(gradient, shape))]);
            recycle([pre_activation]);
        }
        let [parent, weight_parent, bias_parent] = ops.parents.map(|it| it.map(|it| it.id));
        let projections = vec![TrackedProjection {
            weight: &weight,
            dy,
            parents: [weight_parent, bias_parent],
        }];
        backward(
            [TrackedInput {
                x,
                parent,
                projections,
            }],
            gradients,
        );
    }
}

pub(super) fn qkv_tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    projections: [[Tracked<C>; 2]; 3],
) -> [Tracked<C>; 3] {
    let (x, x_node) = x.into_parts();
    let x = contiguous(&x);
    let [q, k, v] = projections.map(|[weight, bias]| {
        let ((weight, weight_node), (bias, bias_node)) = (weight.into_parts(), bias.into_parts());
        (with_unit_stride(&weight), bias, weight_node, bias_node)
    });
    let outputs = qkv(&x, [&q, &k, &v].map(|it| [&it.0, &it.1]));
    let nodes = [x_node, q.2, q.3, k.2, k.3, v.2, v.3];
    let weights = [q.0, k.0, v.0];
    record_outputs::<C, _, 7, 3>(QkvBackward, nodes, outputs, |dys| (x, weights, dys))
}

#[derive(Debug)]
struct QkvBackward;

impl Backward<Flex, 7> for QkvBackward {
    type State = (FlexTensor, [FlexTensor; 3], GradientSlots);

    fn backward(self, ops: Ops<Self::State, 7>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let (x, weights, dys) = ops.state;
        let [parent, operands @ ..] = ops.parents.map(|it| it.map(|it| it.id));
        let operands = operands.as_chunks::<2>().0.iter().zip(&weights);
        let mut projections = Vec::new();
        for ((parents, weight), dy) in operands.zip(dys.take::<3>()) {
            match dy {
                Some(dy) => projections.push(TrackedProjection {
                    weight,
                    dy: contiguous(&dy),
                    parents: *parents,
                }),
                None => register_zeros(weight, *parents, gradients),
            }
        }
        backward(
            [TrackedInput {
                x,
                parent,
                projections,
            }],
            gradients,
        );
    }
}
