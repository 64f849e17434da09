//! Rotary position embedding.

use attentive_kernels::rotary::{self, Direction, Layout, RotaryShape};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, record, recycle, tensor};

pub(super) fn forward(x: &FlexTensor, cosine: &FlexTensor, sine: &FlexTensor) -> FlexTensor {
    rotate(x, cosine, sine, Direction::Forward)
}

/// Rotates `[batch, heads, length, head_width]`, in either memory order.
fn rotate(
    x: &FlexTensor,
    cosine: &FlexTensor,
    sine: &FlexTensor,
    direction: Direction,
) -> FlexTensor {
    let length_first = x.permute(&[0, 2, 1, 3]);
    let (x, layout) = if length_first.is_contiguous() {
        (length_first, Layout::LengthFirst)
    } else {
        (contiguous(x), Layout::HeadsFirst)
    };
    let shape = x.layout().shape().clone();
    let (heads, length) = match layout {
        Layout::LengthFirst => (shape[2], shape[1]),
        Layout::HeadsFirst => (shape[1], shape[2]),
    };
    let sizes = RotaryShape {
        batch: shape[0],
        heads,
        length,
        head_width: shape[3],
        layout,
    };
    let (cosine, sine) = (contiguous(cosine), contiguous(sine));
    let mut y = buffer(shape.num_elements());
    rotary::rotary(
        data(&x),
        sizes,
        data(&cosine),
        data(&sine),
        direction,
        &mut y,
    );
    let y = tensor(y, shape);
    match layout {
        Layout::LengthFirst => y.permute(&[0, 2, 1, 3]),
        Layout::HeadsFirst => y,
    }
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
    cosine: FloatTensor<Autodiff<Flex, C>>,
    sine: FloatTensor<Autodiff<Flex, C>>,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, node) = x.into_parts();
    // Angles come from positions and have no gradient.
    let ((cosine, _), (sine, _)) = (cosine.into_parts(), sine.into_parts());
    let output = forward(&x, &cosine, &sine);
    record::<C, _, 1>(RotaryBackward, [node], output, || (cosine, sine))
}

#[derive(Debug)]
struct RotaryBackward;

impl Backward<Flex, 1> for RotaryBackward {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (cosine, sine) = &ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        if let [Some(parent)] = &ops.parents {
            let gradient = rotate(&dy, cosine, sine, Direction::Backward);
            gradients.register::<Flex>(parent.id, gradient);
        }
        recycle([dy]);
    }
}
