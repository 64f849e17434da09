//! Element-wise functions of one tensor: activations, and the positive feature maps of linear attention.

use attentive_kernels::{activation, feature_maps};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, recycle, single, tensor_like};
use crate::{Activation, FeatureMap};

/// Element-wise activation.
pub(crate) fn activate<const D: usize>(x: Tensor<D>, kind: Activation) -> Tensor<D> {
    apply(x, Elementwise::Activation(kind.kernel()))
}

/// Element-wise positive feature map.
pub(crate) fn feature_map(x: Tensor<4>, map: FeatureMap) -> Tensor<4> {
    apply(x, Elementwise::FeatureMap(map.kernel()))
}

fn apply<const D: usize>(x: Tensor<D>, function: Elementwise) -> Tensor<D> {
    let [y] = run(function, [x.into_dispatch()]);
    Tensor::from_dispatch(y)
}

impl Activation {
    pub(super) fn kernel(self) -> activation::Activation {
        match self {
            Activation::Relu => activation::Activation::Relu,
            Activation::Gelu => activation::Activation::Gelu,
            Activation::GeluTanh => activation::Activation::GeluTanh,
            Activation::Silu => activation::Activation::Silu,
            Activation::Sigmoid => activation::Activation::Sigmoid,
        }
    }
}

impl FeatureMap {
    fn kernel(self) -> feature_maps::FeatureMap {
        match self {
            FeatureMap::EluPlusOne => feature_maps::FeatureMap::EluPlusOne,
            FeatureMap::Relu => feature_maps::FeatureMap::Relu,
            FeatureMap::Exp => feature_maps::FeatureMap::Exp,
            FeatureMap::Softplus => feature_maps::FeatureMap::Softplus,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Elementwise {
    Activation(activation::Activation),
    FeatureMap(feature_maps::FeatureMap),
}

impl Elementwise {
    fn of(self, x: &FlexTensor) -> FlexTensor {
        let mut y = buffer(data(x).len());
        match self {
            Self::Activation(kind) => activation::activate(kind, data(x), &mut y),
            Self::FeatureMap(map) => feature_maps::forward(map, data(x), &mut y),
        }
        tensor_like(y, x)
    }
}

impl FusedOperation<1, 1> for Elementwise {
    type Saved = FlexTensor;

    fn forward(&self, inputs: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let (outputs, x) = self.forward_and_save(inputs);
        recycle([x]);
        outputs
    }

    fn forward_and_save(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FlexTensor) {
        let x = contiguous(&x);
        ([self.of(&x)], x)
    }

    fn backward(
        &self,
        x: FlexTensor,
        dys: [Option<FlexTensor>; 1],
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let dy = contiguous(&single(dys));
        let mut dx = buffer(data(&x).len());
        match *self {
            Self::Activation(kind) => {
                activation::activate_backward(kind, data(&x), data(&dy), &mut dx);
            }
            Self::FeatureMap(map) => feature_maps::backward(map, data(&x), data(&dy), &mut dx),
        }
        let dx = tensor_like(dx, &x);
        recycle([x, dy]);
        [Some(dx)]
    }
}
