//! Softmax of rows.

use attentive_kernels::softmax as kernels;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, recycle, rows_and_width, single, tensor_like};

/// Softmax of the last axis.
pub(crate) fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let [y] = run(Softmax, [x.into_dispatch()]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct Softmax;

impl FusedOperation<1, 1> for Softmax {
    type Saved = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let y = softmax_of_rows(&x);
        recycle([x]);
        [y]
    }

    fn forward_and_save(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FlexTensor) {
        let y = softmax_of_rows(&x);
        ([y.clone()], y)
    }

    fn backward(
        &self,
        y: FlexTensor,
        dys: [Option<FlexTensor>; 1],
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let dy = contiguous(&single(dys));
        let (_, width) = rows_and_width(&y);
        let mut dx = buffer(data(&y).len());
        kernels::softmax_backward(data(&y), data(&dy), width, &mut dx);
        let dx = tensor_like(dx, &y);
        recycle([y, dy]);
        [Some(dx)]
    }
}

fn softmax_of_rows(x: &FlexTensor) -> FlexTensor {
    let x = contiguous(x);
    let (_, width) = rows_and_width(&x);
    let mut y = buffer(data(&x).len());
    kernels::softmax(data(&x), width, &mut y);
    tensor_like(y, &x)
}
