//! Feed-forward layers, plain and gated.
//!
//! Of the hidden layer only what the activation was applied to is kept; what came out of it is made again on the way back,
//! in the same pass as its gradient.

use attentive_kernels::feed_forward::{Down, gated_product};
use attentive_kernels::linear::Shape;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::Hidden;
use super::activation::kernel;
use super::linear::{Applied, Map, activated, backward, forward as linear, shape};
use super::{
    buffer, dense, into_dense, matrix, numbers, present, readable, record, recycle, rows_and_width,
    tensor,
};
use crate::Activation;

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// Weights and biases of gate, up and down; without a gate the first two are absent.
pub(super) type Operands<T> = [[T; 2]; 3];

/// The layer, and on request what the activation was applied to: alone, or with what it is a gate for.
pub(super) fn forward(
    x: &FlexTensor,
    [gate, up, down]: &Operands<FlexTensor>,
    between: Hidden,
    keep: bool,
) -> (FlexTensor, Vec<FlexTensor>) {
    let kind = between.activation;
    let (hidden, kept) = if between.is_gated {
        let gate = linear(x, &gate[0], &gate[1]);
        let (hidden, factor) = gated(x, &gate, up, kind, keep);
        match factor {
            Some(factor) => (hidden, vec![gate, factor]),
            None => {
                recycle([gate]);
                (hidden, Vec::new())
            }
        }
    } else {
        let (hidden, before) = activated(x, &up[0], &up[1], Some(kind), keep);
        (hidden, before.into_iter().collect())
    };
    let output = linear(&hidden, &down[0], &down[1]);
    recycle([hidden]);
    (output, kept)
}

/// `activation(gate) · up(x)`, and on request the second factor.
fn gated(
    x: &FlexTensor,
    gate: &FlexTensor,
    [up, bias]: &[FlexTensor; 2],
    kind: Activation,
    keep: bool,
) -> (FlexTensor, Option<FlexTensor>) {
    let (x, up, bias) = (dense(x), readable(up), dense(bias));
    let shape = shape(&x, &up);
    let sizes = [shape.rows, shape.output];
    let mut y = buffer(shape.rows * shape.output);
    let mut kept = keep.then(|| buffer(y.len()));
    gated_product(
        shape,
        numbers(&x),
        (kernel(kind), numbers(gate)),
        matrix(&up),
        present(&bias),
        kept.as_deref_mut(),
        &mut y,
    );
    (tensor(y, sizes), kept.map(|kept| tensor(kept, sizes)))
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    operands: Operands<Tracked<C>>,
    between: Hidden,
) -> Tracked<C> {
    let (x, x_node) = x.into_parts();
    let x = dense(&x);
    let parts = operands.map(|operands| operands.map(Tracked::<C>::into_parts));
    let [[a, b], [c, d], [e, f]] = parts;
    let nodes = [x_node, a.1, b.1, c.1, d.1, e.1, f.1];
    let operands = [[a.0, b.0], [c.0, d.0], [e.0, f.0]]
        .map(|[weight, bias]| [readable(&weight), dense(&bias)]);
    let (output, kept) = forward(&x, &operands, between, true);
    record::<C, _, 7>(FeedForward(between.activation), nodes, output, || Saved {
        x,
        weights: operands.map(|[weight, _]| weight),
        kept,
    })
}

#[derive(Debug)]
struct FeedForward(Activation);

#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    weights: [FlexTensor; 3],
    /// What the activation was applied to and, with a gate, what it is a gate for.
    kept: Vec<FlexTensor>,
}

impl Backward<Flex, 7> for FeedForward {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 7>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let dy = dense(&gradients.consume::<Flex>(&ops.node));
        let Saved { x, weights, kept } = ops.state;
        let [gate, up, down] = &weights;
        let [parent, operands @ ..] = ops.parents.map(|it| it.map(|it| it.id));
        let [gate_parents, up_parents, down_parents] =
            std::array::from_fn(|i| [operands[2 * i], operands[2 * i + 1]]);
        let rows = rows_and_width(&dy).0;
        let [output, width] = [0, 1].map(|axis| down.layout().shape()[axis]);
        let back = Down {
            shape: Shape {
                rows,
                input: width,
                output,
            },
            dy: numbers(&dy),
            weight: matrix(down),
        };
        let kind = kernel(self.0);
        let mut other = buffer(rows * width);
        // Storage that nobody shares is written in place; shared storage is copied first.
        let mut kept = kept.into_iter().map(into_dense);
        let first = kept.next().expect("the activation's input is kept");
        let map = |weight, parents, dy| Map {
            weight,
            dy,
            parents,
        };
        let (hidden, maps) = match kept.next() {
            None => {
                let mut before = first;
                back.backward(kind, before.storage_mut(), &mut other);
                let slopes = tensor(other, [rows, width]);
                (before, vec![map(up, up_parents, slopes)])
            }
            Some(mut factor) => {
                let mut gates = first;
                let both = [gates.storage_mut(), factor.storage_mut()];
                back.backward_gated(kind, both, &mut other);
                let maps = vec![map(gate, gate_parents, gates), map(up, up_parents, factor)];
                (tensor(other, [rows, width]), maps)
            }
        };
        let inner = Applied {
            x: hidden,
            parent: None,
            maps: vec![map(down, down_parents, dy)],
        };
        backward([inner, Applied { x, parent, maps }], gradients);
    }
}
