//! The fused operations without autodiff: forward passes that recycle the storage of their inputs.

use burn::backend::flex::{Flex, FlexTensor};

use super::{
    AttentionOptions, FusedOps, HiddenActivation, LinearOptions, MaybeActivation, activation, add,
    attention, attention_weights, cross_entropy, dropout, embedding, features, feed_forward,
    linear, linear_attention, norm, recycle, release, rotary, softmax,
};
use crate::{Activation, FeatureMap, NormKind, Stabilizer};

impl FusedOps for Flex {
    fn fused_linear(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        activation: MaybeActivation,
    ) -> FlexTensor {
        let (y, _) = linear::forward_with_activation(&x, &weight, &bias, activation.0, false);
        recycle([x]);
        y
    }

    fn fused_feed_forward(
        x: FlexTensor,
        gate: FlexTensor,
        gate_bias: FlexTensor,
        up: FlexTensor,
        up_bias: FlexTensor,
        down: FlexTensor,
        down_bias: FlexTensor,
        activation: HiddenActivation,
    ) -> FlexTensor {
        let operands = [[gate, gate_bias], [up, up_bias], [down, down_bias]];
        let (y, _) = feed_forward::forward(&x, &operands, activation, false);
        recycle([x]);
        y
    }

    fn fused_linear_qkv(
        x: FlexTensor,
        query_weight: FlexTensor,
        query_bias: FlexTensor,
        key_weight: FlexTensor,
        key_bias: FlexTensor,
        value_weight: FlexTensor,
        value_bias: FlexTensor,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let projections = [
            [&query_weight, &query_bias],
            [&key_weight, &key_bias],
            [&value_weight, &value_bias],
        ];
        let [query, key, value] = linear::qkv(&x, projections);
        recycle([x]);
        (query, key, value)
    }

    fn fused_add_norm(
        x: FlexTensor,
        branch: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        kind: NormKind,
        epsilon: f64,
    ) -> (FlexTensor, FlexTensor) {
        let output = norm::forward(&x, branch, &weight, &bias, kind, epsilon);
        recycle([x]);
        output.statistics.release();
        (output.sum, output.norm)
    }

    fn fused_add(x: FlexTensor, y: FlexTensor) -> FlexTensor {
        add::forward(x, y)
    }

    fn fused_activation(x: FlexTensor, kind: Activation) -> FlexTensor {
        let y = activation::forward(&x, kind);
        recycle([x]);
        y
    }

    fn fused_gated(gate: FlexTensor, up: FlexTensor, kind: Activation) -> FlexTensor {
        let y = activation::gated(&gate, &up, kind);
        recycle([gate, up]);
        y
    }

    fn fused_softmax(x: FlexTensor) -> FlexTensor {
        let y = softmax::forward(&x);
        recycle([x]);
        y
    }

    fn fused_attention(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        bias: FlexTensor,
        options: AttentionOptions,
    ) -> FlexTensor {
        let output = attention::forward(&query, &key, &value, &bias, &options);
        recycle([query, key, value]);
        release(output.log_sum_exp);
        output.context
    }

    fn fused_attention_with_log_sum_exp(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        bias: FlexTensor,
        options: AttentionOptions,
    ) -> (FlexTensor, FlexTensor) {
        let output = attention::forward(&query, &key, &value, &bias, &options);
        recycle([query, key, value]);
        output.into_tensors()
    }

    fn fused_attention_weights(
        query: FlexTensor,
        key: FlexTensor,
        bias: FlexTensor,
        options: AttentionOptions,
    ) -> FlexTensor {
        let weights = attention_weights::forward(&query, &key, &bias, &options);
        recycle([query, key]);
        weights
    }

    fn fused_linear_attention(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        kv_sums: FlexTensor,
        key_sums: FlexTensor,
        options: LinearOptions,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let initial_state = linear_attention::InitialState::new(&kv_sums, &key_sums);
        let operands = [query, key, value];
        let output = linear_attention::forward(&operands, &initial_state, &options);
        recycle(operands);
        release(output.denominators);
        (output.context, output.kv_sums, output.key_sums)
    }

    fn fused_feature_map(x: FlexTensor, map: FeatureMap) -> FlexTensor {
        let y = features::feature_map(&x, map);
        recycle([x]);
        y
    }

    fn fused_random_features(
        x: FlexTensor,
        projection: FlexTensor,
        stabilizer: Stabilizer,
        epsilon: f64,
    ) -> FlexTensor {
        let y = features::random_features(&x, &projection, stabilizer, epsilon);
        recycle([x]);
        y
    }

    fn fused_cross_entropy(logits: FlexTensor, targets: FlexTensor, smoothing: f64) -> FlexTensor {
        let output = cross_entropy::forward(&logits, &targets, smoothing);
        recycle([logits]);
        output.row_statistics.into_iter().for_each(release);
        output.mean
    }

    fn fused_embedding(table: FlexTensor, ids: FlexTensor) -> FlexTensor {
        embedding::forward(&table, &ids)
    }

    fn fused_rotary(x: FlexTensor, cosine: FlexTensor, sine: FlexTensor) -> FlexTensor {
        let y = rotary::forward(&x, &cosine, &sine);
        recycle([x]);
        y
    }

    fn fused_dropout(x: FlexTensor, probability: f64, key: [u32; 2]) -> FlexTensor {
        dropout::forward(&x, probability, key)
    }
}
