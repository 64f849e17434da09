//! Softmax of rows.

use attentive_kernels::softmax as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, record, recycle, rows_and_width, tensor};

pub(super) fn forward(x: &FlexTensor) -> FlexTensor {
    let x = contiguous(x);
    let (_, width) = rows_and_width(&x);
    let mut y = buffer(data(&x).len());
    kernels::softmax(data(&x), width, &mut y);
    tensor(y, x.layout().shape().clone())
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, node) = x.into_parts();
    let y = forward(&x);
    record::<C, _, 1>(SoftmaxBackward, [node], y.clone(), || y)
}

#[derive(Debug)]
struct SoftmaxBackward;

impl Backward<Flex, 1> for SoftmaxBackward {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let y = ops.state;
        let dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let (_, width) = rows_and_width(&y);
            let mut dx = buffer(data(&y).len());
            kernels::softmax_backward(data(&y), data(&dy), width, &mut dx);
            gradients.register::<Flex>(parent.id, tensor(dx, y.layout().shape().clone()));
        }
        recycle([y, dy]);
    }
}
