//! Softmax of rows.

use attentive_kernels::softmax as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, dense, numbers, record, recycle, rows_and_width, tensor};

pub(super) fn forward(x: &FlexTensor) -> FlexTensor {
    let x = dense(x);
    let (_, width) = rows_and_width(&x);
    let mut y = buffer(numbers(&x).len());
    kernels::softmax(numbers(&x), width, &mut y);
    tensor(y, x.layout().shape().clone())
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, node) = x.into_parts();
    let y = forward(&x);
    record::<C, _, 1>(Softmax, [node], y.clone(), || y)
}

#[derive(Debug)]
struct Softmax;

impl Backward<Flex, 1> for Softmax {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let y = ops.state;
        let dy = dense(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let (_, width) = rows_and_width(&y);
            let mut dx = buffer(numbers(&y).len());
            kernels::softmax_backward(numbers(&y), numbers(&dy), width, &mut dx);
            gradients.register::<Flex>(parent.id, tensor(dx, y.layout().shape().clone()));
        }
        recycle([y, dy]);
    }
}
