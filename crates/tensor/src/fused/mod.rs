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
mod linear;
mod linear_attention;
mod norm;
mod outputs;
mod rotary;
mod softmax;
#[cfg(test)]
mod tests;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, NodeGuard, OpsKind};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, DispatchDevice, backend_extension};
use burn::tensor::{DType, Device, Int, Shape, Tensor, TensorData};

pub(crate) use attention::AttentionOptions;
pub(crate) use buffers::{buffer, keep, recycle};
pub(crate) use calls::*;
pub(crate) use linear_attention::LinearOptions;

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
        let outputs = (
            linear::forward(&x, &weight1, &bias1),
            linear::forward(&x, &weight2, &bias2),
            linear::forward(&x, &weight3, &bias3),
        );
        recycle([x]);
        outputs
    }

    fn fused_norm(
        x: FlexTensor,
        branch: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        kind: NormKind,
        epsilon: f64,
    ) -> (FlexTensor, FlexTensor) {
        let normed = norm::forward(&x, &branch, &weight, &bias, kind, epsilon);
        recycle([x, branch]);
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
        kind: Hidden,
    ) -> FloatTensor<Self> {
        let operands = [[gate, gate_bias], [up, up_bias], [down, down_bias]];
        feed_forward::tracked::<C>(x, operands, kind)
    }

    fn fused_three_linears(
        x: FloatTensor<Self>,
        weight1: FloatTensor<Self>,
        bias1: FloatTensor<Self>,
        weight2: FloatTensor<Self>,
        bias2: FloatTensor<Self>,
        weight3: FloatTensor<Self>,
        bias3: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let maps = [[weight1, bias1], [weight2, bias2], [weight3, bias3]];
        linear::three_tracked::<C>(x, maps).into()
    }

    fn fused_norm(
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

    fn fused_attention_with_log_sums(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        attention::tracked_with_log_sums::<C>([query, key, value, bias], options).into()
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
        sums: FloatTensor<Self>,
        totals: FloatTensor<Self>,
        options: LinearOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let start = [sums, totals];
        let (context, sums, totals) =
            linear_attention::tracked::<C>(query, key, value, start, options);
        // Outside the graph: a state carries no gradient.
        let [sums, totals] = [sums, totals].map(FloatTensor::<Self>::new);
        (context, sums, totals)
    }

    fn fused_feature_map(x: FloatTensor<Self>, map: FeatureMap) -> FloatTensor<Self> {
        features::map_tracked::<C>(x, map)
    }

    fn fused_random_features(
        x: FloatTensor<Self>,
        projection: FloatTensor<Self>,
        stabilizer: Stabilizer,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        features::random_tracked::<C>(x, projection, stabilizer, epsilon)
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

/// Whether a tensor's operations have kernels: it is on the CPU, in f32.
pub(crate) fn has_kernels<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(test)]
    if tests::composed_only() {
        return false;
    }
    let device = x.device().inner();
    matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && x.dtype() == DType::F32
}

/// Records an operation and what its backward pass needs.
fn record<C: CheckpointStrategy, O: Backward<Flex, N>, const N: usize>(
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

/// A tensor whose numbers follow each other.
fn dense(x: &FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

/// The same, of a tensor that the caller has no more use for: it stays the only holder of its memory.
fn into_dense(x: FlexTensor) -> FlexTensor {
    if x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements() {
        return x;
    }
    x.to_contiguous()
}

/// Whether a tensor stands for something: an absent one is empty.
fn is_present(x: &FlexTensor) -> bool {
    x.layout().num_elements() > 0
}

/// The numbers of a dense tensor, unless it is absent.
fn present(x: &FlexTensor) -> Option<&[f32]> {
    is_present(x).then(|| numbers(x))
}

/// The numbers of a dense tensor.
fn numbers(x: &FlexTensor) -> &[f32] {
    x.as_slice().expect("the tensor is dense and f32")
}

/// Whole numbers, in whichever width the tensor has them.
fn integers(x: &FlexTensor) -> Vec<i64> {
    let x = dense(x);
    match x.dtype() {
        DType::I64 => x.as_slice::<i64>().expect("dense").to_vec(),
        DType::I32 => {
            let narrow = x.as_slice::<i32>().expect("dense");
            narrow.iter().map(|number| i64::from(*number)).collect()
        }
        other => panic!("ids are {other:?} and must be whole numbers of 32 or 64 bits"),
    }
}

/// A tensor of these numbers.
fn tensor(numbers: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(numbers, shape))
}

/// Rows and width of a tensor, seen as a matrix of its last axis.
fn rows_and_width(x: &FlexTensor) -> (usize, usize) {
    let shape = x.layout().shape();
    let last = shape.num_dims() - 1;
    (shape[..last].iter().product(), shape[last])
}
