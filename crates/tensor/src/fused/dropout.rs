//! Dropout: the mask is a function of a key, so the backward pass recomputes it.

use attentive_kernels::dropout::dropout;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, record, recycle, tensor};

pub(super) fn forward(x: &FlexTensor, probability: f64, key: [u32; 2]) -> FlexTensor {
    let x = contiguous(x);
    let mut y = buffer(data(&x).len());
    dropout(data(&x), probability as f32, key, &mut y);
    tensor(y, x.layout().shape().clone())
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
    probability: f64,
    key: [u32; 2],
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, node) = x.into_parts();
    let output = forward(&x, probability, key);
    record::<C, _, 1>(DropoutBackward, [node], output, || (probability, key))
}

#[derive(Debug)]
struct DropoutBackward;

impl Backward<Flex, 1> for DropoutBackward {
    type State = (f64, [u32; 2]);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (probability, key) = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        if let [Some(parent)] = &ops.parents {
            gradients.register::<Flex>(parent.id, forward(&dy, probability, key));
        }
        recycle([dy]);
    }
}
