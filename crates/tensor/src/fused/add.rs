//! Addition without broadcasting, for residual connections.

use attentive_kernels::elementwise;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, data, into_contiguous, recycle, single, tensor_like};

/// `x + y`
pub(crate) fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    let [sum] = run(Add, [x.into_dispatch(), y.into_dispatch()]);
    Tensor::from_dispatch(sum)
}

#[derive(Clone, Debug)]
struct Add;

impl FusedOperation<2, 1> for Add {
    type Saved = ();

    /// In the storage of either input that is not shared.
    fn forward(&self, inputs: [FlexTensor; 2]) -> [FlexTensor; 1] {
        let [mut x, mut y] = inputs.map(into_contiguous);
        if let Some(sum) = y.try_storage_mut::<f32>() {
            elementwise::add_assign(sum, data(&x));
            recycle([x]);
            return [y];
        }
        if let Some(sum) = x.try_storage_mut::<f32>() {
            elementwise::add_assign(sum, data(&y));
            return [x];
        }
        let mut sum = buffer(data(&x).len());
        elementwise::add(data(&x), data(&y), &mut sum);
        [tensor_like(sum, &x)]
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 2]) -> ([FlexTensor; 1], ()) {
        (self.forward(inputs), ())
    }

    fn backward(
        &self,
        (): (),
        dys: [Option<FlexTensor>; 1],
        needs_gradient: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let dy = single(dys);
        needs_gradient.map(|needed| needed.then(|| dy.clone()))
    }
}
