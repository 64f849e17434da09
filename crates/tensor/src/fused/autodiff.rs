//! The fused operations with autodiff: forward passes recorded in the graph, with the tensors saved for backward.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, NodeGuard, OpsKind};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{
    AttentionOptions, FusedOps, HiddenActivation, LinearOptions, MaybeActivation, activation, add,
    attention, attention_weights, cross_entropy, dropout, embedding, features, feed_forward,
    linear, linear_attention, norm, rotary, softmax,
};
use crate::{Activation, FeatureMap, NormKind, Stabilizer};

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn fused_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        activation: MaybeActivation,
    ) -> FloatTensor<Self> {
        linear::tracked::<C>(x, weight, bias, activation.0)
    }

    fn fused_feed_forward(
        x: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        gate_bias: FloatTensor<Self>,
        up: FloatTensor<Self>,
        up_bias: FloatTensor<Self>,
        down: FloatTensor<Self>,
        down_bias: FloatTensor<Self>,
        activation: HiddenActivation,
    ) -> FloatTensor<Self> {
        let operands = [[gate, gate_bias], [up, up_bias], [down, down_bias]];
        feed_forward::tracked::<C>(x, operands, activation)
    }

    fn fused_linear_qkv(
        x: FloatTensor<Self>,
        query_weight: FloatTensor<Self>,
        query_bias: FloatTensor<Self>,
        key_weight: FloatTensor<Self>,
        key_bias: FloatTensor<Self>,
        value_weight: FloatTensor<Self>,
        value_bias: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let projections = [
            [query_weight, query_bias],
            [key_weight, key_bias],
            [value_weight, value_bias],
        ];
        linear::qkv_tracked::<C>(x, projections).into()
    }

    fn fused_add_norm(
        x: FloatTensor<Self>,
        branch: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        norm::tracked::<C>(x, branch, weight, bias, kind, epsilon).into()
    }

    fn fused_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        add::tracked::<C>(x, y)
    }

    fn fused_activation(x: FloatTensor<Self>, kind: Activation) -> FloatTensor<Self> {
        activation::tracked::<C>(x, kind)
    }

    fn fused_gated(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        kind: Activation,
    ) -> FloatTensor<Self> {
        activation::gated_tracked::<C>(gate, up, kind)
    }

    fn fused_softmax(x: FloatTensor<Self>) -> FloatTensor<Self> {
        softmax::tracked::<C>(x)
    }

    fn fused_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self> {
        attention::tracked::<C>([query, key, value, bias], options)
    }

    fn fused_attention_with_log_sum_exp(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        attention::tracked_with_log_sum_exp::<C>([query, key, value, bias], options).into()
    }

    fn fused_attention_weights(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self> {
        attention_weights::tracked::<C>(query, key, bias, &options)
    }

    fn fused_linear_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        kv_sums: FloatTensor<Self>,
        key_sums: FloatTensor<Self>,
        options: LinearOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let initial_state = [kv_sums, key_sums];
        let (context, kv_sums, key_sums) =
            linear_attention::tracked::<C>(query, key, value, initial_state, options);
        // Outside the graph: no gradient flows through a state.
        let [kv_sums, key_sums] = [kv_sums, key_sums].map(FloatTensor::<Self>::new);
        (context, kv_sums, key_sums)
    }

    fn fused_feature_map(x: FloatTensor<Self>, map: FeatureMap) -> FloatTensor<Self> {
        features::feature_map_tracked::<C>(x, map)
    }

    fn fused_random_features(
        x: FloatTensor<Self>,
        projection: FloatTensor<Self>,
        stabilizer: Stabilizer,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        features::random_features_tracked::<C>(x, projection, stabilizer, epsilon)
    }

    fn fused_cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        cross_entropy::tracked::<C>(logits, targets, smoothing)
    }

    fn fused_embedding(table: FloatTensor<Self>, ids: IntTensor<Self>) -> FloatTensor<Self> {
        embedding::tracked::<C>(table, ids)
    }

    fn fused_rotary(
        x: FloatTensor<Self>,
        cosine: FloatTensor<Self>,
        sine: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rotary::tracked::<C>(x, cosine, sine)
    }

    fn fused_dropout(x: FloatTensor<Self>, probability: f64, key: [u32; 2]) -> FloatTensor<Self> {
        dropout::tracked::<C>(x, probability, key)
    }
}

/// Records an operation and its saved state in the graph.
pub(super) fn record<C: CheckpointStrategy, O: Backward<Flex, N>, const N: usize>(
    operation: O,
    inputs: [NodeGuard; N],
    output: FlexTensor,
    state: impl FnOnce() -> O::State,
) -> FloatTensor<Autodiff<Flex, C>> {
    match operation.prepare::<C>(inputs).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state(), output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}
