//! The operations on the CPU backend (Flex): one kernel each, with a backward pass written by hand.
//!
//! The high-level functions of this crate come here when their tensors are on the CPU in f32, and otherwise compose burn's
//! own operations. Each file has the forward pass on Flex, what it saves, and the backward pass.

mod activation;
mod attention;
mod cross_entropy;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod rotary;
#[cfg(test)]
mod tests;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, NodeGuard, OpsKind};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, DispatchDevice, backend_extension};
use burn::tensor::{DType, Int, Shape, Tensor, TensorData};

pub(crate) use attention::AttentionOptions;
pub(crate) use norm::NormKind;

use crate::Activation;

/// The operations that have a kernel.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedOps: Backend {
    /// `x · weightᵀ` of rows.
    fn fused_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `x · weightᵀ + bias` of rows. An extension's tensors cannot be optional.
    fn fused_linear_bias(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// A normalization of rows.
    fn fused_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// A normalization of rows with a shift.
    fn fused_norm_bias(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// An activation of each number.
    fn fused_activation(x: FloatTensor<Self>, kind: Activation) -> FloatTensor<Self>;

    /// `activation(gate) · up`
    fn fused_gated(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        kind: Activation,
    ) -> FloatTensor<Self>;

    /// Attention of heads.
    fn fused_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        options: AttentionOptions,
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

impl FusedOps for Flex {
    fn fused_linear(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        linear::forward(&x, &weight, None)
    }

    fn fused_linear_bias(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        linear::forward(&x, &weight, Some(&bias))
    }

    fn fused_norm(x: FlexTensor, weight: FlexTensor, kind: NormKind, epsilon: f64) -> FlexTensor {
        norm::forward(&x, &weight, None, kind, epsilon).output
    }

    fn fused_norm_bias(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        kind: NormKind,
        epsilon: f64,
    ) -> FlexTensor {
        norm::forward(&x, &weight, Some(&bias), kind, epsilon).output
    }

    fn fused_activation(x: FlexTensor, kind: Activation) -> FlexTensor {
        activation::forward(&x, kind)
    }

    fn fused_gated(gate: FlexTensor, up: FlexTensor, kind: Activation) -> FlexTensor {
        activation::gated(&gate, &up, kind)
    }

    fn fused_attention(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        options: AttentionOptions,
    ) -> FlexTensor {
        attention::forward(&query, &key, &value, &options).context
    }

    fn fused_cross_entropy(logits: FlexTensor, targets: FlexTensor, smoothing: f64) -> FlexTensor {
        cross_entropy::forward(&logits, &targets, smoothing).mean
    }

    fn fused_embedding(table: FlexTensor, ids: FlexTensor) -> FlexTensor {
        embedding::forward(&table, &ids)
    }

    fn fused_rotary(x: FlexTensor, cosine: FlexTensor, sine: FlexTensor) -> FlexTensor {
        rotary::forward(&x, &cosine, &sine)
    }

    fn fused_dropout(x: FlexTensor, probability: f64, key: [u32; 2]) -> FlexTensor {
        dropout::forward(&x, probability, key)
    }
}

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn fused_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        linear::tracked::<C>(x, weight, None)
    }

    fn fused_linear_bias(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        linear::tracked::<C>(x, weight, Some(bias))
    }

    fn fused_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        norm::tracked::<C>(x, weight, None, kind, epsilon)
    }

    fn fused_norm_bias(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        kind: NormKind,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        norm::tracked::<C>(x, weight, Some(bias), kind, epsilon)
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

    fn fused_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self> {
        attention::tracked::<C>(query, key, value, options)
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

/// `x · weightᵀ + bias` of rows.
pub(crate) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(match bias {
        Some(bias) => Dispatch::fused_linear_bias(x, weight, bias.into_dispatch()),
        None => Dispatch::fused_linear(x, weight),
    })
}

/// A normalization of the last axis.
pub(crate) fn norm<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    kind: NormKind,
    epsilon: f64,
) -> Tensor<D> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(match bias {
        Some(bias) => Dispatch::fused_norm_bias(x, weight, bias.into_dispatch(), kind, epsilon),
        None => Dispatch::fused_norm(x, weight, kind, epsilon),
    })
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
    options: AttentionOptions,
) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::fused_attention(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        options,
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
    let width = shape[shape.num_dims() - 1];
    (shape.num_elements().checked_div(width).unwrap_or(0), width)
}
