//! Activations, plain and gated.

use attentive_kernels::activation as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, record, recycle, tensor};
use crate::Activation;

pub(super) fn kernel(kind: Activation) -> kernels::Activation {
    match kind {
        Activation::Relu => kernels::Activation::Relu,
        Activation::Gelu => kernels::Activation::Gelu,
        Activation::GeluTanh => kernels::Activation::GeluTanh,
        Activation::Silu => kernels::Activation::Silu,
        Activation::Sigmoid => kernels::Activation::Sigmoid,
    }
}

pub(super) fn forward(x: &FlexTensor, kind: Activation) -> FlexTensor {
    let x = contiguous(x);
    let mut y = buffer(data(&x).len());
    kernels::activate(kernel(kind), data(&x), &mut y);
    tensor(y, x.layout().shape().clone())
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
    kind: Activation,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, node) = x.into_parts();
    let x = contiguous(&x);
    let output = forward(&x, kind);
    record::<C, _, 1>(ActivationBackward(kind), [node], output, || x)
}

#[derive(Debug)]
struct ActivationBackward(Activation);

impl Backward<Flex, 1> for ActivationBackward {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let x = ops.state;
        let dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let mut dx = buffer(data(&x).len());
            kernels::activate_backward(kernel(self.0), data(&x), data(&dy), &mut dx);
            gradients.register::<Flex>(parent.id, tensor(dx, x.layout().shape().clone()));
        }
        recycle([x, dy]);
    }
}

pub(super) fn gated(gate: &FlexTensor, up: &FlexTensor, kind: Activation) -> FlexTensor {
    let (gate, up) = (contiguous(gate), contiguous(up));
    let mut y = buffer(data(&gate).len());
    kernels::gated(kernel(kind), data(&gate), data(&up), &mut y);
    tensor(y, gate.layout().shape().clone())
}

pub(super) fn gated_tracked<C: CheckpointStrategy>(
    gate: FloatTensor<Autodiff<Flex, C>>,
    up: FloatTensor<Autodiff<Flex, C>>,
    kind: Activation,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (gate, gate_node) = gate.into_parts();
    let (up, up_node) = up.into_parts();
    let (gate, up) = (contiguous(&gate), contiguous(&up));
    let output = gated(&gate, &up, kind);
    record::<C, _, 2>(GatedBackward(kind), [gate_node, up_node], output, || {
        (gate, up)
    })
}

#[derive(Debug)]
struct GatedBackward(Activation);

impl Backward<Flex, 2> for GatedBackward {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (gate, up) = ops.state;
        let dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        let count = data(&gate).len();
        let (mut dgate, mut dup) = (buffer(count), buffer(count));
        let kind = kernel(self.0);
        kernels::gated_backward(
            kind,
            data(&gate),
            data(&up),
            data(&dy),
            &mut dgate,
            &mut dup,
        );
        for (parent, gradient) in ops.parents.iter().zip([dgate, dup]) {
            if let Some(parent) = parent {
                gradients
                    .register::<Flex>(parent.id, tensor(gradient, gate.layout().shape().clone()));
            }
        }
        recycle([gate, up, dy]);
    }
}
