//! Tensors of the high-level functions on their way to the operations and back.

use super::*;
use crate::{Attended, LinearAttended, LinearMap, LinearState, ScoreBias};

/// What stands for a tensor that is not there.
fn absent<const D: usize>(device: &Device) -> Tensor<D> {
    Tensor::empty([0; D], device)
}

/// `activation(x · weightᵀ + bias)` of rows.
pub(crate) fn linear(
    x: Tensor<2>,
    (weight, bias): LinearMap,
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
    gate: Option<LinearMap>,
    up: LinearMap,
    down: LinearMap,
    kind: Activation,
) -> Tensor<2> {
    let device = x.device();
    let bias = |bias: Option<Tensor<1>>| bias.unwrap_or_else(|| absent(&device)).into_dispatch();
    let hidden = Hidden {
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

/// Three linear maps of the same rows.
pub(crate) fn three_linears(x: Tensor<2>, maps: [LinearMap; 3]) -> [Tensor<2>; 3] {
    let none = absent(&x.device());
    let bias = |bias: Option<Tensor<1>>| bias.unwrap_or_else(|| none.clone()).into_dispatch();
    let [a, b, c] = maps;
    let (a, b, c) = Dispatch::fused_three_linears(
        x.into_dispatch(),
        a.0.into_dispatch(),
        bias(a.1),
        b.0.into_dispatch(),
        bias(b.1),
        c.0.into_dispatch(),
        bias(c.1),
    );
    [a, b, c].map(Tensor::from_dispatch)
}

/// `x + branch`, and its normalization over the last axis.
pub(crate) fn norm<const D: usize>(
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
    let (sum, output) = Dispatch::fused_norm(
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

/// An activation of each number.
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
pub(crate) fn attend(
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

/// Attention of heads, with the log-sums of its rows.
pub(crate) fn attend_with_log_sums(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> Attended {
    let bias = score_bias(bias, &query.device());
    let (context, log_sums) = Dispatch::fused_attention_with_log_sums(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        bias,
        options,
    );
    Attended {
        context: Tensor::from_dispatch(context),
        log_sums: Tensor::from_dispatch(log_sums),
    }
}

/// The weights of attention, before dropout.
pub(crate) fn weigh(
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

/// A bias on scores, whose number of axes says what it is of.
fn score_bias(bias: Option<ScoreBias>, device: &Device) -> FloatTensor<Dispatch> {
    match bias {
        None => absent::<1>(device).into_dispatch(),
        Some(ScoreBias::Pairs(bias)) => bias.into_dispatch(),
        Some(ScoreBias::Keys(bias)) => bias.into_dispatch(),
        Some(ScoreBias::Distances(bias)) => bias.into_dispatch(),
    }
}

/// Linear attention of features, and the state after it.
pub(crate) fn attend_linearly(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    state: Option<LinearState>,
    options: LinearOptions,
) -> LinearAttended {
    let device = query.device();
    let (sums, totals) = match state {
        Some(LinearState { sums, totals }) => (sums, totals),
        None => (absent(&device), absent(&device)),
    };
    let (context, sums, totals) = Dispatch::fused_linear_attention(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        sums.into_dispatch(),
        totals.into_dispatch(),
        options,
    );
    LinearAttended {
        context: Tensor::from_dispatch(context),
        state: LinearState {
            sums: Tensor::from_dispatch(sums),
            totals: Tensor::from_dispatch(totals),
        },
    }
}

/// A positive map of each number.
pub(crate) fn map_features(x: Tensor<4>, map: FeatureMap) -> Tensor<4> {
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
pub(crate) fn mean_cross_entropy(
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

/// Rows of a table.
pub(crate) fn embed(table: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    Tensor::from_dispatch(Dispatch::fused_embedding(
        table.into_dispatch(),
        ids.into_dispatch(),
    ))
}

/// Rotation of pairs by angles.
pub(crate) fn rotate(x: Tensor<4>, cosine: Tensor<3>, sine: Tensor<3>) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::fused_rotary(
        x.into_dispatch(),
        cosine.into_dispatch(),
        sine.into_dispatch(),
    ))
}

/// Zeroes numbers at random.
pub(crate) fn drop_numbers<const D: usize>(
    x: Tensor<D>,
    probability: f64,
    key: [u32; 2],
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_dropout(x.into_dispatch(), probability, key))
}
