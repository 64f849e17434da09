//! Dropout: the mask is a function of a key, so the backward pass recomputes it.

use attentive_kernels::dropout as kernels;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, recycle, single, tensor_like};

/// Dropout with a mask that is a function of the key.
pub(crate) fn dropout<const D: usize>(x: Tensor<D>, probability: f64, key: [u32; 2]) -> Tensor<D> {
    let dropout = Dropout {
        probability: probability as f32,
        key,
    };
    let [y] = run(dropout, [x.into_dispatch()]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct Dropout {
    probability: f32,
    key: [u32; 2],
}

impl FusedOperation<1, 1> for Dropout {
    type Saved = ();

    fn forward(&self, [x]: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let x = contiguous(&x);
        let mut y = buffer(data(&x).len());
        kernels::dropout(data(&x), self.probability, self.key, &mut y);
        let y = tensor_like(y, &x);
        recycle([x]);
        [y]
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 1]) -> ([FlexTensor; 1], ()) {
        (self.forward(inputs), ())
    }

    fn backward(
        &self,
        (): (),
        dys: [Option<FlexTensor>; 1],
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let [dx] = self.forward([single(dys)]);
        [Some(dx)]
    }
}
