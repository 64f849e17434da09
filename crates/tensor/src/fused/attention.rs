//! Attention of heads, wherever their rows stand: a view of a projection needs no copy.

use attentive_kernels::attention::{
    self, Attended as Results, Bias, BiasOf, Masking, Options, Shape, Strides, Upstream,
    WeightDropout,
};
use attentive_kernels::dropout::Dropout;
use attentive_kernels::elementwise;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::heads::{heads, length_first, operand_sizes, rows_dense, shape};
use super::outputs::{Slots, record_several};
use super::{buffer, dense, is_present, keep, numbers, record, recycle, tensor};
use crate::Mask;

/// All that decides an attention besides queries, keys, values and the bias.
#[derive(Clone, Debug)]
pub(crate) struct AttentionOptions {
    pub scale: f64,
    pub mask: Mask,
    pub dropout: Option<(f64, [u32; 2])>,
}

impl AttentionOptions {
    pub(super) fn for_kernel<'a>(&'a self, bias: Option<Bias<'a>>) -> Options<'a> {
        Options {
            scale: self.scale as f32,
            mask: Masking {
                causal: self.mask.is_causal(),
                window: self.mask.window(),
                keys: self.mask.keys(),
                blocks: self.mask.blocks(),
            },
            bias,
            dropout: self.dropout.map(|(probability, key)| WeightDropout {
                dropout: Dropout::new(probability as f32),
                key,
            }),
        }
    }
}

/// The result, and what the backward pass needs of each row.
pub(super) struct Attended {
    pub context: FlexTensor,
    pub log_sums: Vec<f32>,
}

impl Attended {
    /// The context and the log-sums, `[batch, heads, queries]`.
    pub fn into_tensors(self) -> (FlexTensor, FlexTensor) {
        let rows = self.context.layout().shape()[..3].to_vec();
        (self.context, tensor(self.log_sums, rows))
    }
}

pub(super) fn forward(
    query: &FlexTensor,
    key: &FlexTensor,
    value: &FlexTensor,
    bias: &FlexTensor,
    options: &AttentionOptions,
) -> Attended {
    let [query, key, value] = [query, key, value].map(rows_dense);
    let bias = dense(bias);
    let shape = shape([&query, &key, &value]);
    let mut log_sums = buffer(shape.batch * shape.heads * shape.queries);
    let mut context = buffer(log_sums.len() * shape.value_width);
    let strides = Strides::length_first(shape.heads, shape.queries, shape.value_width);
    attention::forward(
        &shape,
        [heads(&query), heads(&key), heads(&value)],
        &options.for_kernel(repeated(&bias)),
        &mut context,
        strides,
        &mut log_sums,
    );
    Attended {
        context: length_first(
            context,
            [shape.batch, shape.heads, shape.queries, shape.value_width],
        ),
        log_sums,
    }
}

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// Attention of query, key, value and bias.
pub(super) fn tracked<C: CheckpointStrategy>(
    operands: [Tracked<C>; 4],
    options: AttentionOptions,
) -> Tracked<C> {
    let (nodes, saved) = attended::<C>(operands, options);
    let context = saved.context.clone();
    record::<C, _, 4>(Attention, nodes, context, || saved)
}

/// The same, and the log-sums of its rows.
pub(super) fn tracked_with_log_sums<C: CheckpointStrategy>(
    operands: [Tracked<C>; 4],
    options: AttentionOptions,
) -> [Tracked<C>; 2] {
    let (nodes, saved) = attended::<C>(operands, options);
    let outputs = Attended {
        context: saved.context.clone(),
        log_sums: saved.log_sums.clone(),
    };
    let outputs = outputs.into_tensors().into();
    record_several::<C, _, 4, 2>(AttentionWithLogSums, nodes, outputs, |slots| (saved, slots))
}

/// The forward pass: the inputs' nodes, and what the backward pass needs.
fn attended<C: CheckpointStrategy>(
    operands: [Tracked<C>; 4],
    options: AttentionOptions,
) -> ([NodeGuard; 4], Saved) {
    let [
        (query, query_node),
        (key, key_node),
        (value, value_node),
        (bias, bias_node),
    ] = operands.map(Tracked::<C>::into_parts);
    let [query, key, value] = [&query, &key, &value].map(rows_dense);
    let bias = dense(&bias);
    let Attended { context, log_sums } = forward(&query, &key, &value, &bias, &options);
    let saved = Saved {
        query,
        key,
        value,
        bias,
        context,
        log_sums,
        options,
    };
    ([query_node, key_node, value_node, bias_node], saved)
}

#[derive(Debug)]
struct Attention;

#[derive(Debug)]
struct AttentionWithLogSums;

#[derive(Clone, Debug)]
struct Saved {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    bias: FlexTensor,
    context: FlexTensor,
    log_sums: Vec<f32>,
    options: AttentionOptions,
}

impl Backward<Flex, 4> for Attention {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let upstream = rows_dense(&gradients.consume::<Flex>(&ops.node));
        let parents = ops.parents.map(|it| it.map(|parent| parent.id));
        ops.state.send_back(upstream, None, parents, gradients);
    }
}

impl Backward<Flex, 4> for AttentionWithLogSums {
    type State = (Saved, Slots);

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let parents = ops.parents.map(|it| it.map(|parent| parent.id));
        let (saved, slots) = ops.state;
        let [upstream, log_sums] = slots.take();
        // Nobody may have read the context.
        let upstream = upstream.map(|it| rows_dense(&it));
        let upstream = upstream.unwrap_or_else(|| {
            let shape = saved.context.layout().shape().clone();
            tensor(vec![0.0; shape.num_elements()], shape)
        });
        saved.send_back(upstream, log_sums, parents, gradients);
    }
}

impl Saved {
    /// Makes the gradients of query, key, value and bias of those of the context and the log-sums. Nobody else may hold
    /// what flows back, in dense rows, so that its memory can be handed in.
    fn send_back(
        self,
        upstream: FlexTensor,
        log_sums_upstream: Option<FlexTensor>,
        parents: [Option<NodeId>; 4],
        gradients: &mut Gradients,
    ) {
        let log_sums_upstream = log_sums_upstream.map(|it| dense(&it));
        let shape = shape([&self.query, &self.key, &self.value]);
        let sizes = operand_sizes(&shape);
        let [mut query, mut key, mut value] = sizes.map(|it| buffer(it.iter().product()));
        let [query_strides, key_strides, value_strides] =
            sizes.map(|[_, heads, length, width]| Strides::length_first(heads, length, width));
        let [.., bias_parent] = parents;
        let mut bias = bias_parent.map(|_| {
            let (_, [.., size]) = bias_sizes(&self.bias);
            buffer(shape.batch * shape.heads * size)
        });
        attention::backward(
            &shape,
            [&self.query, &self.key, &self.value].map(heads),
            Results {
                context: heads(&self.context),
                log_sums: &self.log_sums,
            },
            Upstream {
                context: heads(&upstream),
                log_sums: log_sums_upstream.as_ref().map(numbers),
            },
            &self.options.for_kernel(repeated(&self.bias)),
            attention::Gradients {
                query: &mut query,
                query_strides,
                key: &mut key,
                key_strides,
                value: &mut value,
                value_strides,
                bias: bias.as_deref_mut(),
            },
        );
        let [of_query, of_key, of_value] = sizes;
        let slopes = [
            Some(length_first(query, of_query)),
            Some(length_first(key, of_key)),
            Some(length_first(value, of_value)),
            bias.map(|slopes| summed(slopes, &shape, &self.bias)),
        ];
        for (parent, slopes) in parents.into_iter().zip(slopes) {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                gradients.register::<Flex>(parent, slopes);
            }
        }
        recycle([self.query, self.key, self.value, self.context, upstream]);
        recycle(log_sums_upstream);
        keep(self.log_sums);
    }
}

/// A bias as the kernel reads it; none if it is empty.
pub(super) fn repeated(bias: &FlexTensor) -> Option<Bias<'_>> {
    if !is_present(bias) {
        return None;
    }
    let (of, [batch, heads, size]) = bias_sizes(bias);
    Some(Bias {
        data: numbers(bias),
        of,
        batch_stride: if batch == 1 { 0 } else { heads * size },
        head_stride: if heads == 1 { 0 } else { size },
    })
}

/// What a bias is of, as its number of axes says; its sequences, its heads, and how many numbers a head has.
pub(super) fn bias_sizes(bias: &FlexTensor) -> (BiasOf, [usize; 3]) {
    match bias.layout().shape()[..] {
        [batch, heads, queries, keys] => (BiasOf::Pairs, [batch, heads, queries * keys]),
        [batch, heads, keys] => (BiasOf::Keys, [batch, heads, keys]),
        [heads, distances] => (BiasOf::Distances, [1, heads, distances]),
        ref other => panic!("attention: a bias of {} axes", other.len()),
    }
}

/// The gradient of the bias of each head, added up to the shape of the bias.
pub(super) fn summed(slopes: Vec<f32>, shape: &Shape, bias: &FlexTensor) -> FlexTensor {
    let (_, [batches, heads, size]) = bias_sizes(bias);
    let mut sums = vec![0.0; batches * heads * size];
    for (index, slopes) in slopes.chunks_exact(size.max(1)).enumerate() {
        let (batch, head) = (index / shape.heads % batches, index % shape.heads % heads);
        let start = (batch * heads + head) * size;
        elementwise::add_assign(&mut sums[start..start + size], slopes);
    }
    keep(slopes);
    tensor(sums, bias.layout().shape().clone())
}
