//! Attention of heads with any strides: a view of a projection needs no copy.

use attentive_kernels::attention::{
    self, AttentionDropout, Bias, Masking, Options, OutputGradients, SavedForward, Strides,
};
use attentive_kernels::dropout::Dropout;
use burn::backend::Dispatch;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Device, Tensor};

use super::heads::{contiguous_rows, heads, length_first, operand_sizes, shape};
use super::operation::{FusedOperation, optional, run};
use super::score_bias::{bias_gradient_buffer, broadcast_bias, reduce_bias_gradient};
use super::{buffer, contiguous, data, recycle, release, single, tensor, tensor_like};
use crate::{Mask, PartialAttention, ScoreBias};

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

/// Attention of heads.
pub(crate) fn attention(
    [query, key, value]: [Tensor<4>; 3],
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> Tensor<4> {
    let bias = score_bias(bias, &query.device());
    let [query, key, value] = [query, key, value].map(Tensor::into_dispatch);
    let [context] = run(Attention(options), [query, key, value, bias]);
    Tensor::from_dispatch(context)
}

/// Attention of heads, and the log-sum-exp of its rows.
pub(crate) fn attention_with_log_sum_exp(
    [query, key, value]: [Tensor<4>; 3],
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> PartialAttention {
    let bias = score_bias(bias, &query.device());
    let [query, key, value] = [query, key, value].map(Tensor::into_dispatch);
    let operation = AttentionWithLogSumExp(Attention(options));
    let [context, log_sum_exp] = run(operation, [query, key, value, bias]);
    PartialAttention {
        context: Tensor::from_dispatch(context),
        log_sum_exp: Tensor::from_dispatch(log_sum_exp),
    }
}

/// A bias of the scores; its number of axes determines its kind.
pub(super) fn score_bias(bias: Option<ScoreBias>, device: &Device) -> FloatTensor<Dispatch> {
    match bias {
        None => optional::<1>(None, device),
        Some(ScoreBias::Pairs(bias)) => bias.into_dispatch(),
        Some(ScoreBias::Keys(bias)) => bias.into_dispatch(),
        Some(ScoreBias::Distances(bias)) => bias.into_dispatch(),
    }
}

/// Inputs: query, key, value, bias.
#[derive(Clone, Debug)]
struct Attention(AttentionOptions);

#[derive(Clone, Debug)]
struct AttentionWithLogSumExp(Attention);

#[derive(Clone, Debug)]
struct Saved {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    bias: FlexTensor,
    context: FlexTensor,
    log_sum_exp: Vec<f32>,
}

impl FusedOperation<4, 1> for Attention {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 4]) -> [FlexTensor; 1] {
        let saved = self.attend(inputs);
        recycle([saved.query, saved.key, saved.value]);
        release(saved.log_sum_exp);
        [saved.context]
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 4]) -> ([FlexTensor; 1], Saved) {
        let saved = self.attend(inputs);
        ([saved.context.clone()], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        dys: [Option<FlexTensor>; 1],
        needs_gradient: [bool; 4],
    ) -> [Option<FlexTensor>; 4] {
        let dcontext = contiguous_rows(&single(dys));
        self.gradients(saved, dcontext, None, needs_gradient)
    }
}

impl FusedOperation<4, 2> for AttentionWithLogSumExp {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 4]) -> [FlexTensor; 2] {
        let saved = self.0.attend(inputs);
        recycle([saved.query, saved.key, saved.value]);
        let log_sum_exp = per_row(saved.log_sum_exp, &saved.context);
        [saved.context, log_sum_exp]
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 4]) -> ([FlexTensor; 2], Saved) {
        let saved = self.0.attend(inputs);
        let log_sum_exp = per_row(saved.log_sum_exp.clone(), &saved.context);
        ([saved.context.clone(), log_sum_exp], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        [dcontext, dlog_sum_exp]: [Option<FlexTensor>; 2],
        needs_gradient: [bool; 4],
    ) -> [Option<FlexTensor>; 4] {
        // The loss may depend on the log-sum-exp alone.
        let dcontext = dcontext.map(|it| contiguous_rows(&it)).unwrap_or_else(|| {
            let count = saved.context.layout().num_elements();
            tensor_like(vec![0.0; count], &saved.context)
        });
        (self.0).gradients(saved, dcontext, dlog_sum_exp, needs_gradient)
    }
}

/// A statistic of the rows of the context, `[batch, heads, queries]`.
fn per_row(statistic: Vec<f32>, context: &FlexTensor) -> FlexTensor {
    tensor(statistic, context.layout().shape()[..3].to_vec())
}

impl Attention {
    /// The forward pass. Query, key and value are kept as views where their rows are contiguous.
    fn attend(&self, [query, key, value, bias]: [FlexTensor; 4]) -> Saved {
        let [query, key, value] = [&query, &key, &value].map(contiguous_rows);
        let bias = contiguous(&bias);
        let shape = shape([&query, &key, &value]);
        let mut log_sum_exp = buffer(shape.batch * shape.heads * shape.queries);
        let mut context = buffer(log_sum_exp.len() * shape.value_width);
        let strides = Strides::length_first(shape.heads, shape.queries, shape.value_width);
        attention::forward(
            &shape,
            [&query, &key, &value].map(heads),
            &self.0.for_kernel(broadcast_bias(&bias)),
            &mut context,
            strides,
            &mut log_sum_exp,
        );
        let sizes = [shape.batch, shape.heads, shape.queries, shape.value_width];
        Saved {
            query,
            key,
            value,
            bias,
            context: length_first(context, sizes),
            log_sum_exp,
        }
    }

    /// The gradients of query, key, value and bias. `dcontext` has contiguous rows.
    fn gradients(
        &self,
        saved: Saved,
        dcontext: FlexTensor,
        dlog_sum_exp: Option<FlexTensor>,
        [.., bias_needs]: [bool; 4],
    ) -> [Option<FlexTensor>; 4] {
        let dlog_sum_exp = dlog_sum_exp.map(|it| contiguous(&it));
        let shape = shape([&saved.query, &saved.key, &saved.value]);
        let sizes = operand_sizes(&shape);
        let [mut query, mut key, mut value] = sizes.map(|it| buffer(it.iter().product()));
        let [query_strides, key_strides, value_strides] =
            sizes.map(|[_, heads, length, width]| Strides::length_first(heads, length, width));
        let mut bias = bias_needs.then(|| bias_gradient_buffer(&shape, &saved.bias));
        attention::backward(
            &shape,
            [&saved.query, &saved.key, &saved.value].map(heads),
            SavedForward {
                context: heads(&saved.context),
                log_sum_exp: &saved.log_sum_exp,
            },
            OutputGradients {
                context: heads(&dcontext),
                log_sum_exp: dlog_sum_exp.as_ref().map(data),
            },
            &self.0.for_kernel(broadcast_bias(&saved.bias)),
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
        let dxs = [
            Some(length_first(query, query_sizes)),
            Some(length_first(key, key_sizes)),
            Some(length_first(value, value_sizes)),
            bias.map(|gradient| reduce_bias_gradient(gradient, &shape, &saved.bias)),
        ];
        recycle([saved.query, saved.key, saved.value, saved.context, dcontext]);
        recycle(dlog_sum_exp);
        release(saved.log_sum_exp);
        dxs
    }
}
