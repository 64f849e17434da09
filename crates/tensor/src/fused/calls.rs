//! The fused operations as functions of high-level tensors.

use super::*;
use crate::{LinearAttentionOutput, LinearParameters, LinearState, PartialAttention, ScoreBias};

/// The stand-in for an optional tensor that is not given.
fn absent<const D: usize>(device: &Device) -> Tensor<D> {
    Tensor::empty([0; D], device)
}

/// `activation(x · weightᵀ + bias)` of rows.
pub(crate) fn linear(
    x: Tensor<2>,
    (weight, bias): LinearParameters,
    activation: Option<Activation>,
) -> Tensor<2> {
    let bias = bias.unwrap_or_else(|| absent(&x.device()));
    Tensor::from_dispatch(Dispatch::fused_linear(
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        MaybeActivation(activation),
    ))
}

/// `down(activation(gate(x)) · up(x))` of rows, or without a gate `down(activation(up(x)))`.
pub(crate) fn feed_forward(
    x: Tensor<2>,
    gate: Option<LinearParameters>,
    up: LinearParameters,
    down: LinearParameters,
    kind: Activation,
) -> Tensor<2> {
    let device = x.device();
    let bias = |bias: Option<Tensor<1>>| bias.unwrap_or_else(|| absent(&device)).into_dispatch();
    let hidden = HiddenActivation {
        activation: kind,
        is_gated: gate.is_some(),
    };
    let gate = gate.unwrap_or_else(|| (absent(&device), None));
    Tensor::from_dispatch(Dispatch::fused_feed_forward(
        x.into_dispatch(),
        gate.0.into_dispatch(),
        bias(gate.1),
        up.0.into_dispatch(),
        bias(up.1),
        down.0.into_dispatch(),
        bias(down.1),
        hidden,
    ))
}

/// Query, key and value projections of the same rows.
pub(crate) fn linear_qkv(x: Tensor<2>, projections: [LinearParameters; 3]) -> [Tensor<2>; 3] {
    let none = absent(&x.device());
    let bias = |bias: Option<Tensor<1>>| bias.unwrap_or_else(|| none.clone()).into_dispatch();
    let [q, k, v] = projections;
    let (query, key, value) = Dispatch::fused_linear_qkv(
        x.into_dispatch(),
        q.0.into_dispatch(),
        bias(q.1),
        k.0.into_dispatch(),
        bias(k.1),
        v.0.into_dispatch(),
        bias(v.1),
    );
    [query, key, value].map(Tensor::from_dispatch)
}

/// `x + branch` and its norm; without a branch, `x` and its norm.
pub(crate) fn add_norm<const D: usize>(
    x: Tensor<D>,
    branch: Option<Tensor<D>>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    kind: NormKind,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    let device = x.device();
    let branch = branch.unwrap_or_else(|| absent(&device));
    let bias = bias.unwrap_or_else(|| absent(&device));
    let (sum, output) = Dispatch::fused_add_norm(
        x.into_dispatch(),
        branch.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        kind,
        epsilon,
    );
    (Tensor::from_dispatch(sum), Tensor::from_dispatch(output))
}

/// `x + y`
pub(crate) fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_add(x.into_dispatch(), y.into_dispatch()))
}

/// Softmax of the last axis.
pub(crate) fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_softmax(x.into_dispatch()))
}

/// Element-wise activation.
pub(crate) fn activate<const D: usize>(x: Tensor<D>, kind: Activation) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_activation(x.into_dispatch(), kind))
}

/// `activation(gate) · up`
pub(crate) fn gated<const D: usize>(gate: Tensor<D>, up: Tensor<D>, kind: Activation) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_gated(
        gate.into_dispatch(),
        up.into_dispatch(),
        kind,
    ))
}

/// Attention of heads.
pub(crate) fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> Tensor<4> {
    let bias = score_bias(bias, &query.device());
    Tensor::from_dispatch(Dispatch::fused_attention(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        bias,
        options,
    ))
}

/// Attention of heads, and the log-sum-exp of its rows.
pub(crate) fn attention_with_log_sum_exp(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> PartialAttention {
    let bias = score_bias(bias, &query.device());
    let (context, log_sum_exp) = Dispatch::fused_attention_with_log_sum_exp(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        bias,
        options,
    );
    PartialAttention {
        context: Tensor::from_dispatch(context),
        log_sum_exp: Tensor::from_dispatch(log_sum_exp),
    }
}

/// Attention weights, before dropout.
pub(crate) fn attention_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> Tensor<4> {
    let bias = score_bias(bias, &query.device());
    Tensor::from_dispatch(Dispatch::fused_attention_weights(
        query.into_dispatch(),
        key.into_dispatch(),
        bias,
        options,
    ))
}

/// A bias of the scores; its number of axes determines its kind.
fn score_bias(bias: Option<ScoreBias>, device: &Device) -> FloatTensor<Dispatch> {
    match bias {
        None => absent::<1>(device).into_dispatch(),
        Some(ScoreBias::Pairs(bias)) => bias.into_dispatch(),
        Some(ScoreBias::Keys(bias)) => bias.into_dispatch(),
        Some(ScoreBias::Distances(bias)) => bias.into_dispatch(),
    }
}

/// Linear attention of features, and the final state.
pub(crate) fn linear_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    state: Option<LinearState>,
    options: LinearOptions,
) -> LinearAttentionOutput {
    let device = query.device();
    let (kv_sums, key_sums) = match state {
        Some(LinearState { kv_sums, key_sums }) => (kv_sums, key_sums),
        None => (absent(&device), absent(&device)),
    };
    let (context, kv_sums, key_sums) = Dispatch::fused_linear_attention(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        kv_sums.into_dispatch(),
        key_sums.into_dispatch(),
        options,
    );
    LinearAttentionOutput {
        context: Tensor::from_dispatch(context),
        state: LinearState {
            kv_sums: Tensor::from_dispatch(kv_sums),
            key_sums: Tensor::from_dispatch(key_sums),
        },
    }
}

/// Element-wise positive feature map.
pub(crate) fn feature_map(x: Tensor<4>, map: FeatureMap) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::fused_feature_map(x.into_dispatch(), map))
}

/// Random features of rows.
pub(crate) fn random_features(
    x: Tensor<4>,
    projection: Tensor<2>,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::fused_random_features(
        x.into_dispatch(),
        projection.into_dispatch(),
        stabilizer,
        epsilon,
    ))
}

/// Mean cross-entropy of rows.
pub(crate) fn cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    smoothing: f64,
) -> Tensor<1> {
    Tensor::from_dispatch(Dispatch::fused_cross_entropy(
        logits.into_dispatch(),
        targets.into_dispatch(),
        smoothing,
    ))
}

/// Embedding lookup.
pub(crate) fn embedding(table: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    Tensor::from_dispatch(Dispatch::fused_embedding(
        table.into_dispatch(),
        ids.into_dispatch(),
    ))
}

/// Rotary position embedding.
pub(crate) fn rotary(x: Tensor<4>, cosine: Tensor<3>, sine: Tensor<3>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::fused_rotary(
        x.into_dispatch(),
        cosine.into_dispatch(),
        sine.into_dispatch(),
    ))
}

/// Dropout with a mask that is a function of the key.
pub(crate) fn dropout<const D: usize>(x: Tensor<D>, probability: f64, key: [u32; 2]) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_dropout(x.into_dispatch(), probability, key))
}
