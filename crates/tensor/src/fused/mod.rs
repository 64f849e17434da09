//! The operations on the CPU backend (Flex): one kernel each, with a backward pass written by hand.
//!
//! The high-level functions of this crate come here when their tensors are on the CPU in f32, and otherwise compose burn's
//! own operations. Each file has the forward pass on Flex, what it saves, and the backward pass. A backward pass takes its
//! state and the gradient apart and hands the memory in for the next operations ([`buffers`]).
//!
//! An extension's tensors cannot be optional: an absent one is empty ([`absent`], [`is_present`]).

mod activation;
mod add;
mod attention;
mod attention_weights;
mod buffers;
mod calls;
mod cross_entropy;
mod dropout;
mod embedding;
mod features;
mod feed_forward;
mod flex;
mod heads;
mod linear;
mod linear_attention;
mod norm;
mod numbers;
mod outputs;
mod rotary;
mod softmax;
#[cfg(test)]
mod tests;
mod tracked;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, DispatchDevice, backend_extension};
use burn::tensor::{DType, Device, Int, Tensor};

pub(crate) use attention::AttentionOptions;
pub(crate) use buffers::{buffer, keep, recycle};
pub(crate) use calls::*;
pub(crate) use linear_attention::LinearOptions;
use numbers::{
    dense, integers, into_dense, is_present, matrix, numbers, present, readable, rows_and_width,
    tensor,
};
use tracked::record;

use crate::{Activation, FeatureMap, NormKind, Stabilizer};

/// The operations that have a kernel.
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
        kind: Hidden,
    ) -> FloatTensor<Self>;

    /// Three linear maps of the same rows.
    fn fused_three_linears(
        x: FloatTensor<Self>,
        weight1: FloatTensor<Self>,
        bias1: FloatTensor<Self>,
        weight2: FloatTensor<Self>,
        bias2: FloatTensor<Self>,
        weight3: FloatTensor<Self>,
        bias3: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// `x + branch`, and its normalization.
    fn fused_norm(
        x: FloatTensor<Self>,
        branch: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// `x + y`
    fn fused_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;

    /// An activation of each number.
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

    /// Attention of heads, and the log-sums of its rows, `[batch, heads, queries]`.
    fn fused_attention_with_log_sums(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The weights of attention, before dropout.
    fn fused_attention_weights(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self>;

    /// Linear attention of features from a starting state: the context, and the sums and totals of the state after it.
    fn fused_linear_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        sums: FloatTensor<Self>,
        totals: FloatTensor<Self>,
        options: LinearOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// A positive map of each number.
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

    /// Rows of a table.
    fn fused_embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self>;

    /// Rotation of pairs by angles.
    fn fused_rotary(
        x: FloatTensor<Self>,
        cosine: FloatTensor<Self>,
        sine: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// Zeroes numbers at random.
    fn fused_dropout(x: FloatTensor<Self>, probability: f64, key: [u32; 2]) -> FloatTensor<Self>;
}

/// An activation, or none. (A plain `Option` would be taken for an optional tensor.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaybeActivation(pub Option<Activation>);

/// What a feed-forward layer does between its maps. (A gate without width is empty, and yet not absent.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hidden {
    pub activation: Activation,
    pub is_gated: bool,
}

/// Whether a tensor's operations have kernels: it is on the CPU, in f32.
pub(crate) fn has_kernels<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(test)]
    if tests::composed_only() {
        return false;
    }
    let device = x.device().inner();
    matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && x.dtype() == DType::F32
}
