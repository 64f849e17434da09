//! Linear maps: alone, with an activation, and several of one input.

use attentive_kernels::Onto;
use attentive_kernels::activation as kernels;
use attentive_kernels::linear::{self, Shape};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::activation::kernel;
use super::outputs::{Slots, record_several};
use super::{
    buffer, dense, matrix, numbers, present, readable, record, recycle, rows_and_width, tensor,
};
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
    let (x, weight, bias) = (dense(x), readable(weight), dense(bias));
    let shape = shape(&x, &weight);
    let sizes = [shape.rows, shape.output];
    let mut y = buffer(shape.rows * shape.output);
    let mut before = keep.then(|| buffer(y.len()));
    let map = linear::Forward {
        shape,
        weight: matrix(&weight),
        bias: present(&bias),
        activation: activation.map(kernel),
        before: before.as_deref_mut(),
        y: &mut y,
    };
    linear::forward(numbers(&x), [map]);
    (tensor(y, sizes), before.map(|before| tensor(before, sizes)))
}

/// Three maps, of weight and bias each, applied to one input.
pub(super) fn three(x: &FlexTensor, maps: [[&FlexTensor; 2]; 3]) -> [FlexTensor; 3] {
    let x = dense(x);
    let maps = maps.map(|[weight, bias]| [readable(weight), dense(bias)]);
    let shapes = maps.each_ref().map(|[weight, _]| shape(&x, weight));
    let mut results = shapes.map(|shape| buffer(shape.rows * shape.output));
    let each = maps.iter().zip(shapes).zip(&mut results);
    let each = each.map(|(([weight, bias], shape), y)| linear::Forward {
        shape,
        weight: matrix(weight),
        bias: present(bias),
        activation: None,
        before: None,
        y,
    });
    linear::forward(numbers(&x), each);
    let mut shapes = shapes.into_iter();
    results.map(|y| {
        let shape = shapes.next().expect("there is a shape for each");
        tensor(y, [shape.rows, shape.output])
    })
}

/// One map on the way back: its weight, the gradient of its result, and who wants those of weight and bias.
pub(super) struct Map<'a> {
    pub weight: &'a FlexTensor,
    pub dy: FlexTensor,
    /// Of weight and bias.
    pub parents: [Option<NodeId>; 2],
}

/// An input on the way back, and who wants its gradient.
pub(super) struct Applied<'a> {
    pub x: FlexTensor,
    pub parent: Option<NodeId>,
    pub maps: Vec<Map<'a>>,
}

/// Registers the gradients of inputs and of the maps that were applied to them. All products are one job, inside which the
/// gradients of an input are added up.
pub(super) fn backward<const N: usize>(inputs: [Applied; N], gradients: &mut Gradients) {
    let mut slopes = inputs.each_ref().map(Applied::buffers);
    let work = inputs.iter().zip(&mut slopes);
    linear::backward(work.map(|(input, slopes)| input.borrowed(slopes)));
    for (input, slopes) in inputs.into_iter().zip(slopes) {
        input.register(slopes, gradients);
    }
}

/// Memory for the gradients of an input, and of weight and bias of each of its maps.
struct Buffers {
    dx: Option<Vec<f32>>,
    maps: Vec<[Option<Vec<f32>>; 2]>,
}

impl Applied<'_> {
    fn buffers(&self) -> Buffers {
        let (rows, width) = rows_and_width(&self.x);
        let of_map = |map: &Map| {
            let shape = shape(&self.x, map.weight);
            let sizes = [shape.output * shape.input, shape.output];
            std::array::from_fn(|i| map.parents[i].map(|_| buffer(sizes[i])))
        };
        Buffers {
            dx: self.parent.map(|_| buffer(rows * width)),
            maps: self.maps.iter().map(of_map).collect(),
        }
    }

    fn borrowed<'a>(&'a self, slopes: &'a mut Buffers) -> linear::Applied<'a> {
        let dx = slopes.dx.as_deref_mut();
        let maps = self.maps.iter().zip(&mut slopes.maps);
        let maps = maps.map(|(map, [dweight, dbias])| linear::Map {
            shape: shape(&self.x, map.weight),
            dy: numbers(&map.dy),
            weight: matrix(map.weight),
            dweight: dweight.as_deref_mut(),
            dbias: dbias.as_deref_mut(),
        });
        linear::Applied {
            x: numbers(&self.x),
            dx: dx.map(|dx| (dx, Onto::Replace)),
            maps: maps.collect(),
        }
    }

    fn register(self, slopes: Buffers, gradients: &mut Gradients) {
        for (map, slopes) in self.maps.into_iter().zip(slopes.maps) {
            let shape = map.weight.layout().shape();
            let shapes = [vec![shape[0], shape[1]], vec![shape[0]]];
            for ((parent, slopes), shape) in map.parents.iter().zip(slopes).zip(shapes) {
                if let (Some(parent), Some(slopes)) = (parent, slopes) {
                    gradients.register::<Flex>(*parent, tensor(slopes, shape));
                }
            }
            recycle([map.dy]);
        }
        if let (Some(parent), Some(dx)) = (self.parent, slopes.dx) {
            let (rows, width) = rows_and_width(&self.x);
            gradients.register::<Flex>(parent, tensor(dx, [rows, width]));
        }
        recycle([self.x]);
    }
}

/// For a map whose output the loss does not depend on: whoever made its operands still waits for their gradients.
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
    let (x, weight) = (dense(&x), readable(&weight));
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
            dy,
            parents: [weight_parent, bias_parent],
        };
        let maps = vec![map];
        backward([Applied { x, parent, maps }], gradients);
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
        (readable(&weight), bias, weight_node, bias_node)
    });
    let outputs = three(&x, [&a, &b, &c].map(|map| [&map.0, &map.1]));
    let nodes = [x_node, a.2, a.3, b.2, b.3, c.2, c.3];
    let weights = [a.0, b.0, c.0];
    record_several::<C, _, 7, 3>(Three, nodes, outputs, |slots| (x, weights, slots))
}

#[derive(Debug)]
struct Three;

impl Backward<Flex, 7> for Three {
    type State = (FlexTensor, [FlexTensor; 3], Slots);

    fn backward(self, ops: Ops<Self::State, 7>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let (x, weights, slots) = ops.state;
        let [parent, operands @ ..] = ops.parents.map(|it| it.map(|it| it.id));
        let operands = operands.as_chunks::<2>().0.iter().zip(&weights);
        let mut maps = Vec::new();
        for ((parents, weight), dy) in operands.zip(slots.take::<3>()) {
            match dy {
                Some(dy) => maps.push(Map {
                    weight,
                    dy: dense(&dy),
                    parents: *parents,
                }),
                None => register_zeros(weight, *parents, gradients),
            }
        }
        backward([Applied { x, parent, maps }], gradients);
    }
}
