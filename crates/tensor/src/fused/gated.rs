//! Gated activations.

use attentive_kernels::activation as kernels;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, recycle, single, tensor_like};
use crate::Activation;

/// `activation(gate) · up`
pub(crate) fn gated<const D: usize>(gate: Tensor<D>, up: Tensor<D>, kind: Activation) -> Tensor<D> {
    let [y] = run(Gated(kind), [gate.into_dispatch(), up.into_dispatch()]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct Gated(Activation);

impl FusedOperation<2, 1> for Gated {
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 2]) -> [FlexTensor; 1] {
        let (outputs, inputs) = self.forward_and_save(inputs);
        recycle(inputs);
        outputs
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 2]) -> ([FlexTensor; 1], [FlexTensor; 2]) {
        let [gate, up] = inputs.each_ref().map(contiguous);
        let mut y = buffer(data(&gate).len());
        kernels::gated(self.0.kernel(), data(&gate), data(&up), &mut y);
        ([tensor_like(y, &gate)], [gate, up])
    }

    fn backward(
        &self,
        [gate, up]: [FlexTensor; 2],
        dys: [Option<FlexTensor>; 1],
        _: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let dy = contiguous(&single(dys));
        let [mut dgate, mut dup] = [&gate, &up].map(|x| buffer(data(x).len()));
        let (gate_data, up_data) = (data(&gate), data(&up));
        kernels::gated_backward(
            self.0.kernel(),
            gate_data,
            up_data,
            data(&dy),
            &mut dgate,
            &mut dup,
        );
        let dxs = [dgate, dup].map(|gradient| Some(tensor_like(gradient, &gate)));
        recycle([gate, up, dy]);
        dxs
    }
}
