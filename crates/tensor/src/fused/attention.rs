//! Attention of heads with any strides: a view of a projection needs no copy.

use attentive_kernels::attention::{
    self, AttentionDropout, Bias, BiasLayout, Masking, Options, OutputGradients, SavedForward,
    Shape, Strides,
};
use attentive_kernels::dropout::Dropout;
use attentive_kernels::elementwise;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::heads::{contiguous_rows, heads, length_first, operand_sizes, shape};
use super::outputs::{GradientSlots, record_outputs};
use super::{buffer, contiguous, data, is_present, record, recycle, release, tensor};
use crate::Mask;

/// The settings of an attention: all but query, key, value and bias.
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
            dropout: self.dropout.map(|(probability, key)| AttentionDropout {
                dropout: Dropout::new(probability as f32),
                key,
            }),
        }
    }
}

/// The context, and the row statistic that the backward pass needs.
pub(super) struct AttentionForward {
    pub context: FlexTensor,
    pub log_sum_exp: Vec<f32>,
}

impl AttentionForward {
    /// The context and the log-sum-exp, `[batch, heads, queries]`.
    pub fn into_tensors(self) -> (FlexTensor, FlexTensor) {
        let rows = self.context.layout().shape()[..3].to_vec();
        (self.context, tensor(self.log_sum_exp, rows))
    }
}

pub(super) fn forward(
    query: &FlexTensor,
    key: &FlexTensor,
    value: &FlexTensor,
    bias: &FlexTensor,
    options: &AttentionOptions,
) -> AttentionForward {
    let [query, key, value] = [query, key, value].map(contiguous_rows);
    let bias = contiguous(bias);
    let shape = shape([&query, &key, &value]);
    let mut log_sum_exp = buffer(shape.batch * shape.heads * shape.queries);
    let mut context = buffer(log_sum_exp.len() * shape.value_width);
    let strides = Strides::length_first(shape.heads, shape.queries, shape.value_width);
    attention::forward(
        &shape,
        [heads(&query), heads(&key), heads(&value)],
        &options.for_kernel(broadcast_bias(&bias)),
        &mut context,
        strides,
        &mut log_sum_exp,
    );
    AttentionForward {
        context: length_first(
            context,
            [shape.batch, shape.heads, shape.queries, shape.value_width],
        ),
        log_sum_exp,
    }
}

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// Attention of query, key, value and bias.
pub(super) fn tracked<C: CheckpointStrategy>(
    operands: [Tracked<C>; 4],
    options: AttentionOptions,
) -> Tracked<C> {
    let (nodes, saved) = forward_and_save::<C>(operands, options);
    let context = saved.context.clone();
    record::<C, _, 4>(AttentionBackward, nodes, context, || saved)
}

/// The same, and the log-sum-exp of its rows.
pub(super) fn tracked_with_log_sum_exp<C: CheckpointStrategy>(
    operands: [Tracked<C>; 4],
    options: AttentionOptions,
) -> [Tracked<C>; 2] {
    let (nodes, saved) = forward_and_save::<C>(operands, options);
    let outputs = AttentionForward {
        context: saved.context.clone(),
        log_sum_exp: saved.log_sum_exp.clone(),
    };
    let outputs = outputs.into_tensors().into();
    record_outputs::<C, _, 4, 2>(AttentionWithLogSumExpBackward, nodes, outputs, |dys| {
        (saved, dys)
    })
}

/// The forward pass: the inputs' nodes, and the saved tensors.
fn forward_and_save<C: CheckpointStrategy>(
    operands: [Tracked<C>; 4],
    options: AttentionOptions,
) -> ([NodeGuard; 4], SavedAttention) {
    let [
        (query, query_node),
        (key, key_node),
        (value, value_node),
        (bias, bias_node),
    ] = operands.map(Tracked::<C>::into_parts);
    let [query, key, value] = [&query, &key, &value].map(contiguous_rows);
    let bias = contiguous(&bias);
    let AttentionForward {
        context,
        log_sum_exp,
    } = forward(&query, &key, &value, &bias, &options);
    let saved = SavedAttention {
        query,
        key,
        value,
        bias,
        context,
        log_sum_exp,
        options,
    };
    ([query_node, key_node, value_node, bias_node], saved)
}

#[derive(Debug)]
struct AttentionBackward;

#[derive(Debug)]
struct AttentionWithLogSumExpBackward;

#[derive(Clone, Debug)]
struct SavedAttention {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    bias: FlexTensor,
    context: FlexTensor,
    log_sum_exp: Vec<f32>,
    options: AttentionOptions,
}

impl Backward<Flex, 4> for AttentionBackward {
    type State = SavedAttention;

    fn backward(
        self,
        ops: Ops<SavedAttention, 4>,
        gradients: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let dcontext = contiguous_rows(&gradients.consume::<Flex>(&ops.node));
        let parents = ops.parents.map(|it| it.map(|parent| parent.id));
        ops.state.backward(dcontext, None, parents, gradients);
    }
}

impl Backward<Flex, 4> for AttentionWithLogSumExpBackward {
    type State = (SavedAttention, GradientSlots);

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let parents = ops.parents.map(|it| it.map(|parent| parent.id));
        let (saved, dys) = ops.state;
        let [dcontext, dlog_sum_exp] = dys.take();
        // The loss may depend on the log-sum-exp alone.
        let dcontext = dcontext.map(|it| contiguous_rows(&it));
        let dcontext = dcontext.unwrap_or_else(|| {
            let shape = saved.context.layout().shape().clone();
            tensor(vec![0.0; shape.num_elements()], shape)
        });
        saved.backward(dcontext, dlog_sum_exp, parents, gradients);
    }
}

impl SavedAttention {
    /// Registers the gradients of query, key, value and bias. `dcontext` has contiguous rows, and its storage is recycled
    /// unless shared.
    fn backward(
        self,
        dcontext: FlexTensor,
        dlog_sum_exp: Option<FlexTensor>,
        parents: [Option<NodeId>; 4],
        gradients: &mut Gradients,
    ) {
        let dlog_sum_exp = dlog_sum_exp.map(|it| contiguous(&it));
        let shape = shape([&self.query, &self.key, &self.value]);
        let sizes = operand_sizes(&shape);
        let [mut query, mut key, mut value] = sizes.map(|it| buffer(it.iter().product()));
        let [query_strides, key_strides, value_strides] =
            sizes.map(|[_, heads, length, width]| Strides::length_first(heads, length, width));
        let [.., bias_parent] = parents;
        let mut bias = bias_parent.map(|_| {
            let (_, [.., size]) = bias_layout(&self.bias);
            buffer(shape.batch * shape.heads * size)
        });
        attention::backward(
            &shape,
            [&self.query, &self.key, &self.value].map(heads),
            SavedForward {
                context: heads(&self.context),
                log_sum_exp: &self.log_sum_exp,
            },
            OutputGradients {
                context: heads(&dcontext),
                log_sum_exp: dlog_sum_exp.as_ref().map(data),
            },
            &self.options.for_kernel(broadcast_bias(&self.bias)),
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
        let [query_sizes, key_sizes, value_sizes] = sizes;
        let input_gradients = [
            Some(length_first(query, query_sizes)),
            Some(length_first(key, key_sizes)),
            Some(length_first(value, value_sizes)),
            bias.map(|gradient| reduce_bias_gradient(gradient, &shape, &self.bias)),
        ];
        for (parent, gradient) in parents.into_iter().zip(input_gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<Flex>(parent, gradient);
            }
        }
        recycle([self.query, self.key, self.value, self.context, dcontext]);
        recycle(dlog_sum_exp);
        release(self.log_sum_exp);
    }
}

/// A bias as the kernel reads it, with stride zero along broadcast axes; none if it is absent.
pub(super) fn broadcast_bias(bias: &FlexTensor) -> Option<Bias<'_>> {
    if !is_present(bias) {
        return None;
    }
    let (layout, [batch, heads, size]) = bias_layout(bias);
    Some(Bias {
        data: data(bias),
        layout,
        batch_stride: if batch == 1 { 0 } else { heads * size },
        head_stride: if heads == 1 { 0 } else { size },
    })
}

/// The kind of a bias, from its number of axes; its batch, its heads, and its elements per head.
pub(super) fn bias_layout(bias: &FlexTensor) -> (BiasLayout, [usize; 3]) {
    match bias.layout().shape()[..] {
        [batch, heads, queries, keys] => (BiasLayout::PerPair, [batch, heads, queries * keys]),
        [batch, heads, keys] => (BiasLayout::PerKey, [batch, heads, keys]),
        [heads, distances] => (BiasLayout::PerDistance, [1, heads, distances]),
        ref other => panic!("attention: a bias of {} axes", other.len()),
    }
}

/// Sums the per-head gradients of a bias over its broadcast axes.
pub(super) fn reduce_bias_gradient(
    gradient: Vec<f32>,
    shape: &Shape,
    bias: &FlexTensor,
) -> FlexTensor {
    let (_, [batches, heads, size]) = bias_layout(bias);
    let mut sums = vec![0.0; batches * heads * size];
    for (index, gradient) in gradient.chunks_exact(size.max(1)).enumerate() {
        let (batch, head) = (index / shape.heads % batches, index % shape.heads % heads);
        let start = (batch * heads + head) * size;
        elementwise::add_assign(&mut sums[start..start + size], gradient);
    }
    release(gradient);
    tensor(sums, bias.layout().shape().clone())
}
