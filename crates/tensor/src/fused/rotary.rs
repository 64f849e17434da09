//! Rotary positions.

use attentive_kernels::rotary::{self, Direction, Heads, Layout};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, dense, numbers, record, recycle, tensor};

pub(super) fn forward(x: &FlexTensor, cosine: &FlexTensor, sine: &FlexTensor) -> FlexTensor {
    turn(x, cosine, sine, Direction::Forward)
}

/// Turns `[batch, heads, length, head_width]`, in whichever of its two orders it stands in memory.
fn turn(
    x: &FlexTensor,
    cosine: &FlexTensor,
    sine: &FlexTensor,
    direction: Direction,
) -> FlexTensor {
    let exchanged = x.permute(&[0, 2, 1, 3]);
    let (x, layout) = if exchanged.is_contiguous() {
        (exchanged, Layout::LengthFirst)
    } else {
        (dense(x), Layout::HeadsFirst)
    };
    let shape = x.layout().shape().clone();
    let (heads, length) = match layout {
        Layout::LengthFirst => (shape[2], shape[1]),
        Layout::HeadsFirst => (shape[1], shape[2]),
    };
    let sizes = Heads {
        batch: shape[0],
        heads,
        length,
        head_width: shape[3],
        layout,
    };
    let (cosine, sine) = (dense(cosine), dense(sine));
    let mut y = buffer(shape.num_elements());
    rotary::rotary(
        numbers(&x),
        sizes,
        numbers(&cosine),
        numbers(&sine),
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
    // Angles are made from positions and have no gradient.
    let ((cosine, _), (sine, _)) = (cosine.into_parts(), sine.into_parts());
    let output = forward(&x, &cosine, &sine);
    record::<C, _, 1>(Rotary, [node], output, || (cosine, sine))
}

#[derive(Debug)]
struct Rotary;

impl Backward<Flex, 1> for Rotary {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (cosine, sine) = &ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        if let [Some(parent)] = &ops.parents {
            let slopes = turn(&dy, cosine, sine, Direction::Backward);
            gradients.register::<Flex>(parent.id, slopes);
        }
        recycle([dy]);
    }
}
