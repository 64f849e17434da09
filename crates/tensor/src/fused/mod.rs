//! Fused operations on the CPU backend (Flex): one kernel each, with a hand-written backward pass.
//!
//! The public functions of this crate come here when their tensors are on the CPU in f32, and otherwise compose burn's own
//! operations. Each file is one operation: the function that those call, and a [`operation::FusedOperation`] with its
//! forward pass, what it saves, and its backward pass, which recycles the storage of what it consumed ([`buffer_pool`]).

mod add;
mod attention;
mod attention_weights;
mod autodiff;
mod buffer_pool;
mod cross_entropy;
mod data;
mod dropout;
mod elementwise;
mod embedding;
mod feed_forward;
mod gated;
mod heads;
mod linear;
mod linear_attention;
mod norm;
mod operation;
mod projections;
mod random_features;
mod rotary;
mod score_bias;
mod softmax;
#[cfg(test)]
mod tests;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

pub(crate) use add::add;
pub(crate) use attention::{AttentionOptions, attention, attention_with_log_sum_exp};
pub(crate) use attention_weights::attention_weights;
pub(crate) use buffer_pool::{buffer, recycle, release};
pub(crate) use cross_entropy::cross_entropy;
use data::{
    contiguous, data, integers, into_contiguous, is_present, matrix, optional_data, rows_and_width,
    single, tensor, tensor_like, with_unit_stride,
};
pub(crate) use dropout::dropout;
pub(crate) use elementwise::{activate, feature_map};
pub(crate) use embedding::embedding;
pub(crate) use feed_forward::feed_forward;
pub(crate) use gated::gated;
pub(crate) use linear::{linear, linear_qkv};
pub(crate) use linear_attention::{LinearOptions, linear_attention};
pub(crate) use norm::add_norm;
pub(crate) use random_features::random_features;
pub(crate) use rotary::rotary;
pub(crate) use softmax::softmax;

/// Whether a tensor's operations have fused kernels: it is on the CPU, in f32.
pub(crate) fn has_kernels<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(test)]
    if tests::composed_only() {
        return false;
    }
    let device = x.device().inner();
    matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && x.dtype() == DType::F32
}
