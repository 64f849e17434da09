//! Fused operations on the CPU backend (Flex): one kernel each, with a hand-written backward pass.
//!
//! The public functions of this crate come here when their tensors are on the CPU in f32, and otherwise compose burn's own
//! operations. Each file has the forward pass on Flex, the saved tensors, and the backward pass, which recycles the storage
//! of what it consumed ([`buffer_pool`]).
//!
//! Tensors of a backend extension cannot be optional: an absent one is empty ([`absent`], [`is_present`]).

mod activation;
mod add;
mod attention;
mod attention_weights;
mod autodiff;
mod buffer_pool;
mod calls;
mod cross_entropy;
mod data;
mod dropout;
mod embedding;
mod features;
mod feed_forward;
mod flex;
mod heads;
mod linear;
mod linear_attention;
mod norm;
mod outputs;
mod rotary;
mod softmax;
#[cfg(test)]
mod tests;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, DispatchDevice, backend_extension};
use burn::tensor::{DType, Device, Int, Tensor};

pub(crate) use attention::AttentionOptions;
use autodiff::record;
pub(crate) use buffer_pool::{buffer, recycle, release};
pub(crate) use calls::*;
use data::{
    contiguous, data, integers, into_contiguous, is_present, matrix, optional_data, rows_and_width,
    tensor, with_unit_stride,
};
pub(crate) use linear_attention::LinearOptions;

use crate::{Activation, FeatureMap, NormKind, Stabilizer};

/// The operations that have a fused kernel.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedOps: Backend {
    /// `activation(x · weightᵀ + bias)` of rows.
    fn fused_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        activation: MaybeActivation,
    ) -> FloatTensor<Self>;

    /// `down(activation(gate(x)) · up(x))` of rows, or without a gate `down(activation(up(x)))`.
    #[allow(clippy::too_many_arguments)]
    fn fused_feed_forward(
        x: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        gate_bias: FloatTensor<Self>,
        up: FloatTensor<Self>,
        up_bias: FloatTensor<Self>,
        down: FloatTensor<Self>,
        down_bias: FloatTensor<Self>,
        activation: HiddenActivation,
    ) -> FloatTensor<Self>;

    /// Query, key and value projections of the same rows.
    fn fused_linear_qkv(
        x: FloatTensor<Self>,
        query_weight: FloatTensor<Self>,
        query_bias: FloatTensor<Self>,
        key_weight: FloatTensor<Self>,
        key_bias: FloatTensor<Self>,
        value_weight: FloatTensor<Self>,
        value_bias: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// `x + branch` and its norm; without a branch, `x` and its norm.
    fn fused_add_norm(
        x: FloatTensor<Self>,
        branch: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// `x + y`
    fn fused_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Element-wise activation.
    fn fused_activation(x: FloatTensor<Self>, kind: Activation) -> FloatTensor<Self>;

    /// `activation(gate) · up`
    fn fused_gated(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        kind: Activation,
    ) -> FloatTensor<Self>;

    /// Softmax of rows.
    fn fused_softmax(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Attention of heads, with a bias on the scores.
    fn fused_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self>;

    /// Attention of heads, and the log-sum-exp of its rows, `[batch, heads, queries]`.
    fn fused_attention_with_log_sum_exp(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Attention weights, before dropout.
    fn fused_attention_weights(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self>;

    /// Linear attention of features from an initial state: the context, and the sums of the final state.
    fn fused_linear_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        kv_sums: FloatTensor<Self>,
        key_sums: FloatTensor<Self>,
        options: LinearOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// Element-wise positive feature map.
    fn fused_feature_map(x: FloatTensor<Self>, map: FeatureMap) -> FloatTensor<Self>;

    /// Random features of rows.
    fn fused_random_features(
        x: FloatTensor<Self>,
        projection: FloatTensor<Self>,
        stabilizer: Stabilizer,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// Mean cross-entropy of rows.
    fn fused_cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self>;

    /// Embedding lookup.
    fn fused_embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self>;

    /// Rotary position embedding.
    fn fused_rotary(
        x: FloatTensor<Self>,
        cosine: FloatTensor<Self>,
        sine: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// Dropout with a mask that is a function of the key.
    fn fused_dropout(x: FloatTensor<Self>, probability: f64, key: [u32; 2]) -> FloatTensor<Self>;
}

/// An optional activation. (The macro takes a plain `Option` for an optional tensor.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaybeActivation(pub Option<Activation>);

/// The activation of a feed-forward layer. (A gate of width zero is empty, and yet not absent.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct HiddenActivation {
    pub activation: Activation,
    pub is_gated: bool,
}

/// Whether a tensor's operations have fused kernels: it is on the CPU, in f32.
pub(crate) fn has_kernels<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(test)]
    if tests::composed_only() {
        return false;
    }
    let device = x.device().inner();
    matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && x.dtype() == DType::F32
}
