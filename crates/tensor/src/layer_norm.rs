//! Layer normalization: zero mean and unit variance over the last axis. Ba et al. 2016.

use burn::tensor::Tensor;

use crate::fused::{self, NormKind};

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axis.
///
/// # Panics
/// When the last axis of `x` is not the weight's size.
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    epsilon: f64,
) -> Tensor<D> {
    let dims = x.dims();
    assert_eq!(
        dims[D - 1],
        weight.dims()[0],
        "layer_norm: input {dims:?} does not fit weight {:?}",
        weight.dims()
    );
    if fused::has_kernels(&x) {
        return fused::norm(x, weight, bias, NormKind::Layer, epsilon);
    }
    composed(x, weight, bias, epsilon)
}

fn composed<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    epsilon: f64,
) -> Tensor<D> {
    let centred = x.clone() - x.mean_dim(D - 1);
    let variance = centred.clone().square().mean_dim(D - 1);
    let y = centred / (variance + epsilon).sqrt() * weight.unsqueeze();
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}
