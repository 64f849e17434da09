//! Root-mean-square normalization: unit scale over the last axis, no centring. Zhang and Sennrich 2019.

use burn::tensor::Tensor;

use crate::fused::{self, NormKind};

/// `x / sqrt(mean(x²) + epsilon) * weight` over the last axis.
///
/// # Panics
/// When the last axis of `x` is not the weight's size.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let dims = x.dims();
    assert_eq!(
        dims[D - 1],
        weight.dims()[0],
        "rms_norm: input {dims:?} does not fit weight {:?}",
        weight.dims()
    );
    if fused::has_kernels(&x) {
        return fused::norm(x, weight, None, NormKind::Rms, epsilon);
    }
    composed(x, weight, epsilon)
}

fn composed<const D: usize>(x: Tensor<D>, weight: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let scale = (x.clone().square().mean_dim(D - 1) + epsilon).sqrt();
    x / scale * weight.unsqueeze()
}
