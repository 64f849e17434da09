//! Softmax over the last axis; a row of only minus infinity gives zeros instead of NaN.

use burn::tensor::Tensor;

use crate::{Mask, fused};

/// `e^x / Σ e^x` over the last axis.
pub fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if fused::has_kernels(&x) {
        return fused::softmax(x);
    }
    if x.shape().num_elements() == 0 {
        return x;
    }
    let maxima = x.clone().detach().max_dim(D - 1);
    let empty = maxima.clone().equal_scalar(f32::NEG_INFINITY);
    let exponentials = (x - maxima.mask_fill(empty.clone(), 0.0)).exp();
    let sums = exponentials.clone().sum_dim(D - 1).mask_fill(empty, 1.0);
    exponentials / sums
}

/// The softmax of each row of `scores` `[batch, heads, queries, keys]` over the keys that the mask allows; zeros if it allows
/// none. For scores that are not dot products of queries and keys; for those use [`crate::attention_weights`].
///
/// # Panics
/// When the mask does not match the scores.
pub fn masked_softmax(scores: Tensor<4>, mask: &Mask) -> Tensor<4> {
    let batch = scores.dims()[0];
    if let Some(ranges) = mask.keys() {
        assert_eq!(
            ranges.len(),
            batch,
            "masked_softmax: {} ranges of keys do not match scores {:?}",
            ranges.len(),
            scores.dims()
        );
    }
    softmax(mask.apply(scores))
}
