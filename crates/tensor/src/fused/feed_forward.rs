//! Feed-forward layers, plain and gated.
//!
//! Only the pre-activations of the hidden layer are saved; its output is recomputed in the backward pass, together with its
//! gradient.

use attentive_kernels::feed_forward::{DownProjection, gated_projection};
use attentive_kernels::linear::LinearShape;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::HiddenActivation;
use super::activation::kernel;
use super::linear::{
    TrackedInput, TrackedProjection, backward, forward as linear, forward_with_activation, shape,
};
use super::{
    buffer, contiguous, data, into_contiguous, matrix, optional_data, record, recycle,
    rows_and_width, tensor, with_unit_stride,
};
use crate::Activation;

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// Weights and biases of gate, up and down; without a gate the first two are absent.
pub(super) type Operands<T> = [[T; 2]; 3];

/// The output, and on request the saved activations: the pre-activations and, with a gate, the up projection.
pub(super) fn forward(
    x: &FlexTensor,
    [gate, up, down]: &Operands<FlexTensor>,
    hidden_activation: HiddenActivation,
    save: bool,
) -> (FlexTensor, Vec<FlexTensor>) {
    let kind = hidden_activation.activation;
    let (hidden, saved) = if hidden_activation.is_gated {
        let gate = linear(x, &gate[0], &gate[1]);
        let (hidden, up) = gated(x, &gate, up, kind, save);
        match up {
            Some(up) => (hidden, vec![gate, up]),
            None => {
                recycle([gate]);
                (hidden, Vec::new())
            }
        }
    } else {
        let (hidden, pre_activation) = forward_with_activation(x, &up[0], &up[1], Some(kind), save);
        (hidden, pre_activation.into_iter().collect())
    };
    let output = linear(&hidden, &down[0], &down[1]);
    recycle([hidden]);
    (output, saved)
}

/// `activation(gate) · up(x)`, and on request `up(x)`.
fn gated(
    x: &FlexTensor,
    gate: &FlexTensor,
    [up, bias]: &[FlexTensor; 2],
    kind: Activation,
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
        (kernel(kind), data(gate)),
        matrix(&up),
        optional_data(&bias),
        projected.as_deref_mut(),
        &mut y,
    );
    (tensor(y, sizes), projected.map(|it| tensor(it, sizes)))
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    operands: Operands<Tracked<C>>,
    hidden_activation: HiddenActivation,
) -> Tracked<C> {
    let (x, x_node) = x.into_parts();
    let x = contiguous(&x);
    let parts = operands.map(|operands| operands.map(Tracked::<C>::into_parts));
    let [[a, b], [c, d], [e, f]] = parts;
    let nodes = [x_node, a.1, b.1, c.1, d.1, e.1, f.1];
    let operands = [[a.0, b.0], [c.0, d.0], [e.0, f.0]]
        .map(|[weight, bias]| [with_unit_stride(&weight), contiguous(&bias)]);
    let (output, activations) = forward(&x, &operands, hidden_activation, true);
    record::<C, _, 7>(
        FeedForwardBackward(hidden_activation.activation),
        nodes,
        output,
        || SavedFeedForward {
            x,
            weights: operands.map(|[weight, _]| weight),
            activations,
        },
    )
}

#[derive(Debug)]
struct FeedForwardBackward(Activation);

#[derive(Clone, Debug)]
struct SavedFeedForward {
    x: FlexTensor,
    weights: [FlexTensor; 3],
    /// The pre-activations and, with a gate, the up projection.
    activations: Vec<FlexTensor>,
}

impl Backward<Flex, 7> for FeedForwardBackward {
    type State = SavedFeedForward;

    fn backward(
        self,
        ops: Ops<SavedFeedForward, 7>,
        gradients: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        let SavedFeedForward {
            x,
            weights,
            activations,
        } = ops.state;
        let [gate, up, down] = &weights;
        let [parent, operands @ ..] = ops.parents.map(|it| it.map(|it| it.id));
        let [gate_parents, up_parents, down_parents] =
            std::array::from_fn(|i| [operands[2 * i], operands[2 * i + 1]]);
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
        let kind = kernel(self.0);
        let mut output_buffer = buffer(rows * width);
        // Saved activations are overwritten; shared storage is copied first.
        let mut activations = activations.into_iter().map(into_contiguous);
        let mut pre_activation = activations.next().expect("the pre-activations are saved");
        let projection = |weight, parents, dy| TrackedProjection {
            weight,
            dy,
            parents,
        };
        let (hidden, projections) = match activations.next() {
            None => {
                down_backward.backward(kind, pre_activation.storage_mut(), &mut output_buffer);
                let dup = tensor(output_buffer, [rows, width]);
                (pre_activation, vec![projection(up, up_parents, dup)])
            }
            Some(mut projected) => {
                // Each is replaced by its gradient.
                let operands = [pre_activation.storage_mut(), projected.storage_mut()];
                down_backward.backward_gated(kind, operands, &mut output_buffer);
                let projections = vec![
                    projection(gate, gate_parents, pre_activation),
                    projection(up, up_parents, projected),
                ];
                (tensor(output_buffer, [rows, width]), projections)
            }
        };
        let hidden = TrackedInput {
            x: hidden,
            parent: None,
            projections: vec![projection(down, down_parents, dy)],
        };
        let input = TrackedInput {
            x,
            parent,
            projections,
        };
        backward([hidden, input], gradients);
    }
}
