//! Softmax over the last axis; a row of nothing but minus infinity gives zeros instead of NaN.

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
    let largest = x.clone().detach().max_dim(D - 1);
    let empty = largest.clone().equal_scalar(f32::NEG_INFINITY);
    let exponentials = (x - largest.mask_fill(empty.clone(), 0.0)).exp();
    let sums = exponentials.clone().sum_dim(D - 1).mask_fill(empty, 1.0);
    exponentials / sums
}

/// The softmax of each row of `scores` `[batch, heads, queries, keys]` over the keys that the mask allows, and zeros where it
/// allows none. For scores that are no products of queries and keys; for those there is [`crate::attention_weights`].
///
/// # Panics
/// When the mask does not fit the scores.
pub fn masked_softmax(scores: Tensor<4>, mask: &Mask) -> Tensor<4> {
    let batch = scores.dims()[0];
    if let Some(ranges) = mask.keys() {
        assert_eq!(
            ranges.len(),
            batch,
            "masked_softmax: {} ranges of keys do not fit scores {:?}",
            ranges.len(),
            scores.dims()
        );
    }
    softmax(mask.hide(scores))
}
