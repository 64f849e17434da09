//! Linear maps: alone, with an activation, and several of one input.

use attentive_kernels::Onto;
use attentive_kernels::activation as kernels;
use attentive_kernels::linear::{self, Gradients as Slopes, Shape};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::activation::kernel;
use super::outputs::{Slots, record_several};
use super::{buffer, dense, numbers, present, record, recycle, rows_and_width, tensor};
use crate::Activation;

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

pub(super) fn shape(x: &FlexTensor, weight: &FlexTensor) -> Shape {
    let (rows, input) = rows_and_width(x);
    let output = weight.layout().shape()[0];
    Shape {
        rows,
        input,
        output,
    }
}

/// `x · weightᵀ + bias`, where an empty bias is none.
pub(super) fn forward(x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor) -> FlexTensor {
    activated(x, weight, bias, None, false).0
}

/// With an activation, and on request with what it was applied to.
pub(super) fn activated(
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: &FlexTensor,
    activation: Option<Activation>,
    keep: bool,
) -> (FlexTensor, Option<FlexTensor>) {
    let (x, weight, bias) = (dense(x), dense(weight), dense(bias));
    let shape = shape(&x, &weight);
    let sizes = [shape.rows, shape.output];
    let mut y = buffer(shape.rows * shape.output);
    let mut before = keep.then(|| buffer(y.len()));
    linear::forward(
        shape,
        numbers(&x),
        numbers(&weight),
        present(&bias),
        activation.map(kernel),
        before.as_deref_mut(),
        &mut y,
    );
    (tensor(y, sizes), before.map(|before| tensor(before, sizes)))
}

/// One map on the way back: what it was applied to is shared, its own operands and who wants their gradients are here.
pub(super) struct Map<'a> {
    pub weight: &'a FlexTensor,
    /// Of weight and bias.
    pub parents: [Option<NodeId>; 2],
}

impl Map<'_> {
    /// Registers the gradients of weight and bias, and puts or adds that of the input to `dx`.
    pub(super) fn backward(
        &self,
        x: &FlexTensor,
        dy: FlexTensor,
        dx: Option<(&mut [f32], Onto)>,
        gradients: &mut Gradients,
    ) {
        let shape = shape(x, self.weight);
        let sizes = [shape.output * shape.input, shape.output];
        let mut slopes: [Option<Vec<f32>>; 2] =
            std::array::from_fn(|i| self.parents[i].map(|_| buffer(sizes[i])));
        let [dweight, dbias] = &mut slopes;
        let wanted = Slopes {
            x: dx,
            weight: dweight.as_deref_mut(),
            bias: dbias.as_deref_mut(),
        };
        linear::backward(
            shape,
            numbers(&dy),
            numbers(x),
            numbers(self.weight),
            wanted,
        );
        recycle([dy]);
        let shapes = [vec![shape.output, shape.input], vec![shape.output]];
        for ((parent, slopes), shape) in self.parents.iter().zip(slopes).zip(shapes) {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                gradients.register::<Flex>(*parent, tensor(slopes, shape));
            }
        }
    }
}

impl Map<'_> {
    /// For a map whose output the loss does not depend on: whoever made its operands still waits for their gradients.
    fn register_zeros(&self, gradients: &mut Gradients) {
        let shape = self.weight.layout().shape();
        let shapes = [vec![shape[0], shape[1]], vec![shape[0]]];
        for (parent, shape) in self.parents.iter().zip(shapes) {
            if let Some(parent) = parent {
                let zeros = vec![0.0; shape.iter().product()];
                gradients.register::<Flex>(*parent, tensor(zeros, shape));
            }
        }
    }
}

/// The backward passes of maps of one input: the gradients of the input are added up inside the products.
pub(super) fn backward_of_maps<'a>(
    x: FlexTensor,
    parent: Option<NodeId>,
    maps: impl IntoIterator<Item = (Map<'a>, FlexTensor)>,
    gradients: &mut Gradients,
) {
    let (rows, width) = rows_and_width(&x);
    let mut dx = parent.map(|_| buffer(rows * width));
    let mut onto = Onto::Replace;
    for (map, dy) in maps {
        map.backward(&x, dy, dx.as_deref_mut().map(|dx| (dx, onto)), gradients);
        onto = Onto::Add;
    }
    if let (Some(parent), Some(mut dx)) = (parent, dx) {
        if onto == Onto::Replace {
            dx.fill(0.0);
        }
        gradients.register::<Flex>(parent, tensor(dx, [rows, width]));
    }
    recycle([x]);
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
    let (x, weight) = (dense(&x), dense(&weight));
    let (output, before) = activated(&x, &weight, &bias, activation, activation.is_some());
    let nodes = [x_node, weight_node, bias_node];
    record::<C, _, 3>(Linear, nodes, output, || Saved {
        x,
        weight,
        activation: activation.zip(before),
    })
}

#[derive(Debug)]
struct Linear;

#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    weight: FlexTensor,
    activation: Option<(Activation, FlexTensor)>,
}

impl Backward<Flex, 3> for Linear {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let mut dy = dense(&gradients.consume::<Flex>(&ops.node));
        let Saved {
            x,
            weight,
            activation,
        } = ops.state;
        if let Some((kind, before)) = activation {
            let mut slopes = buffer(numbers(&dy).len());
            kernels::activate_backward(kernel(kind), numbers(&before), numbers(&dy), &mut slopes);
            let shape = dy.layout().shape().clone();
            recycle([std::mem::replace(&mut dy, tensor(slopes, shape))]);
            recycle([before]);
        }
        let [parent, weight_parent, bias_parent] = ops.parents.map(|it| it.map(|it| it.id));
        let map = Map {
            weight: &weight,
            parents: [weight_parent, bias_parent],
        };
        backward_of_maps(x, parent, [(map, dy)], gradients);
    }
}

pub(super) fn three_tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    maps: [[Tracked<C>; 2]; 3],
) -> [Tracked<C>; 3] {
    let (x, x_node) = x.into_parts();
    let x = dense(&x);
    let [a, b, c] = maps.map(|[weight, bias]| {
        let ((weight, weight_node), (bias, bias_node)) = (weight.into_parts(), bias.into_parts());
        let weight = dense(&weight);
        let output = forward(&x, &weight, &bias);
        (output, weight, weight_node, bias_node)
    });
    let nodes = [x_node, a.2, a.3, b.2, b.3, c.2, c.3];
    let weights = [a.1, b.1, c.1];
    record_several::<C, _, 7, 3>(Three, nodes, [a.0, b.0, c.0], |slots| (x, weights, slots))
}

#[derive(Debug)]
struct Three;

impl Backward<Flex, 7> for Three {
    type State = (FlexTensor, [FlexTensor; 3], Slots);

    fn backward(self, ops: Ops<Self::State, 7>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let (x, weights, slots) = ops.state;
        let [parent, operands @ ..] = ops.parents.map(|it| it.map(|it| it.id));
        let maps = operands.as_chunks::<2>().0.iter().zip(&weights);
        let maps = maps.map(|([weight_parent, bias_parent], weight)| Map {
            weight,
            parents: [*weight_parent, *bias_parent],
        });
        let slopes = slots.take::<3>();
        let wanted = maps.zip(slopes).filter_map(|(map, dy)| match dy {
            Some(dy) => Some((map, dense(&dy))),
            None => {
                map.register_zeros(gradients);
                None
            }
        });
        let wanted: Vec<_> = wanted.collect();
        backward_of_maps(x, parent, wanted, gradients);
    }
}
