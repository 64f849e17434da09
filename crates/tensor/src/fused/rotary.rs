//! Rotary position embedding.

use attentive_kernels::rotary::{self as kernels, Direction, Layout, RotaryShape};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, recycle, single, tensor};

/// Rotary position embedding.
pub(crate) fn rotary(x: Tensor<4>, cosine: Tensor<3>, sine: Tensor<3>) -> Tensor<4> {
    // Angles come from positions and have no gradient.
    let angles = [cosine, sine].map(|it| it.detach().into_dispatch());
    let [cosine, sine] = angles;
    let [y] = run(Rotary, [x.into_dispatch(), cosine, sine]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct Rotary;

impl FusedOperation<3, 1> for Rotary {
    /// Cosine and sine of the angles.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [x, cosine, sine]: [FlexTensor; 3]) -> [FlexTensor; 1] {
        let y = rotate(&x, [&cosine, &sine], Direction::Forward);
        recycle([x]);
        [y]
    }

    fn forward_and_save(
        &self,
        [x, cosine, sine]: [FlexTensor; 3],
    ) -> ([FlexTensor; 1], [FlexTensor; 2]) {
        let y = rotate(&x, [&cosine, &sine], Direction::Forward);
        recycle([x]);
        ([y], [cosine, sine])
    }

    fn backward(
        &self,
        angles: [FlexTensor; 2],
        dys: [Option<FlexTensor>; 1],
        _: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let dy = single(dys);
        let dx = rotate(&dy, angles.each_ref(), Direction::Backward);
        recycle([dy]);
        [Some(dx), None, None]
    }
}

/// Rotates `[batch, heads, length, head_width]`, in either memory order.
fn rotate(x: &FlexTensor, angles: [&FlexTensor; 2], direction: Direction) -> FlexTensor {
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
    let [cosine, sine] = angles.map(contiguous);
    let mut y = buffer(shape.num_elements());
    kernels::rotary(
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
