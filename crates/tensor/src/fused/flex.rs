//! The operations without a graph: the forward passes, after which the memory of what they read is free.

use burn::backend::flex::{Flex, FlexTensor};

use super::{
    AttentionOptions, FusedOps, Hidden, LinearOptions, MaybeActivation, activation, add, attention,
    attention_weights, cross_entropy, dropout, embedding, features, feed_forward, keep, linear,
    linear_attention, norm, recycle, rotary, softmax,
};
use crate::{Activation, FeatureMap, NormKind, Stabilizer};

impl FusedOps for Flex {
    fn fused_linear(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        activation: MaybeActivation,
    ) -> FlexTensor {
        let (y, _) = linear::activated(&x, &weight, &bias, activation.0, false);
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
        kind: Hidden,
    ) -> FlexTensor {
        let operands = [[gate, gate_bias], [up, up_bias], [down, down_bias]];
        let (y, _) = feed_forward::forward(&x, &operands, kind, false);
        recycle([x]);
        y
    }

    fn fused_three_linears(
        x: FlexTensor,
        weight1: FlexTensor,
        bias1: FlexTensor,
        weight2: FlexTensor,
        bias2: FlexTensor,
        weight3: FlexTensor,
        bias3: FlexTensor,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let maps = [[&weight1, &bias1], [&weight2, &bias2], [&weight3, &bias3]];
        let [first, second, third] = linear::three(&x, maps);
        recycle([x]);
        (first, second, third)
    }

    fn fused_norm(
        x: FlexTensor,
        branch: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        kind: NormKind,
        epsilon: f64,
    ) -> (FlexTensor, FlexTensor) {
        let normed = norm::forward(&x, branch, &weight, &bias, kind, epsilon);
        recycle([x]);
        normed.statistics.keep();
        (normed.sum, normed.output)
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
        let attended = attention::forward(&query, &key, &value, &bias, &options);
        recycle([query, key, value]);
        keep(attended.log_sums);
        attended.context
    }

    fn fused_attention_with_log_sums(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        bias: FlexTensor,
        options: AttentionOptions,
    ) -> (FlexTensor, FlexTensor) {
        let attended = attention::forward(&query, &key, &value, &bias, &options);
        recycle([query, key, value]);
        attended.into_tensors()
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
        sums: FlexTensor,
        totals: FlexTensor,
        options: LinearOptions,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let start = linear_attention::Start::new(&sums, &totals);
        let operands = [query, key, value];
        let passed = linear_attention::forward(&operands, &start, &options);
        recycle(operands);
        keep(passed.denominators);
        (passed.context, passed.sums, passed.totals)
    }

    fn fused_feature_map(x: FlexTensor, map: FeatureMap) -> FlexTensor {
        let y = features::map(&x, map);
        recycle([x]);
        y
    }

    fn fused_random_features(
        x: FlexTensor,
        projection: FlexTensor,
        stabilizer: Stabilizer,
        epsilon: f64,
    ) -> FlexTensor {
        let y = features::random(&x, &projection, stabilizer, epsilon);
        recycle([x]);
        y
    }

    fn fused_cross_entropy(logits: FlexTensor, targets: FlexTensor, smoothing: f64) -> FlexTensor {
        let judged = cross_entropy::forward(&logits, &targets, smoothing);
        recycle([logits]);
        judged.statistics.into_iter().for_each(keep);
        judged.mean
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
