//! Addition without broadcasting, for residual connections.

use attentive_kernels::elementwise;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, data, into_contiguous, record, recycle, tensor};

/// `x + y`, in the storage of either operand that is not shared.
pub(super) fn forward(x: FlexTensor, y: FlexTensor) -> FlexTensor {
    let (mut x, mut y) = (into_contiguous(x), into_contiguous(y));
    if let Some(sum) = y.try_storage_mut::<f32>() {
        elementwise::add_assign(sum, data(&x));
        recycle([x]);
        return y;
    }
    if let Some(sum) = x.try_storage_mut::<f32>() {
        elementwise::add_assign(sum, data(&y));
        return x;
    }
    let mut sum = buffer(data(&x).len());
    elementwise::add(data(&x), data(&y), &mut sum);
    tensor(sum, x.layout().shape().clone())
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
    y: FloatTensor<Autodiff<Flex, C>>,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, x_node) = x.into_parts();
    let (y, y_node) = y.into_parts();
    record::<C, _, 2>(AddBackward, [x_node, y_node], forward(x, y), || ())
}

#[derive(Debug)]
struct AddBackward;

impl Backward<Flex, 2> for AddBackward {
    type State = ();

    fn backward(self, ops: Ops<(), 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        for parent in ops.parents.iter().flatten() {
            gradients.register::<Flex>(parent.id, dy.clone());
        }
    }
}
