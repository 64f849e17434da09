//! Attention of heads, wherever their rows stand: a view of a projection needs no copy.

use std::ops::Range;

use attentive_kernels::attention::{
    self, Attended as Results, Bias, BiasOf, Heads, Masking, Options, Shape, Strides, Upstream,
    WeightDropout,
};
use attentive_kernels::dropout::Dropout;
use attentive_kernels::elementwise;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, dense, is_present, keep, numbers, record, recycle, tensor};

/// All that decides an attention besides queries, keys and values.
#[derive(Clone, Debug)]
pub(crate) struct AttentionOptions {
    pub scale: f64,
    pub causal: bool,
    pub window: Option<usize>,
    pub keys: Option<Vec<Range<usize>>>,
    pub dropout: Option<(f64, [u32; 2])>,
}

impl AttentionOptions {
    fn for_kernel<'a>(&'a self, bias: Option<Bias<'a>>) -> Options<'a> {
        Options {
            scale: self.scale as f32,
            mask: Masking {
                causal: self.causal,
                window: self.window,
                keys: self.keys.as_deref(),
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

pub(super) fn forward(
    query: &FlexTensor,
    key: &FlexTensor,
    value: &FlexTensor,
    bias: &FlexTensor,
    options: &AttentionOptions,
) -> Attended {
    let [query, key, value] = [query, key, value].map(rows_dense);
    let bias = dense(bias);
    let shape = shape(&query, &key, &value);
    let mut log_sums = buffer(shape.batch * shape.heads * shape.queries);
    let mut context = buffer(log_sums.len() * shape.value_width);
    // Positions outside heads, as the output projection reads them.
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
            shape.batch,
            shape.heads,
            shape.queries,
            shape.value_width,
        ),
        log_sums,
    }
}

pub(super) fn tracked<C: CheckpointStrategy>(
    query: FloatTensor<Autodiff<Flex, C>>,
    key: FloatTensor<Autodiff<Flex, C>>,
    value: FloatTensor<Autodiff<Flex, C>>,
    bias: FloatTensor<Autodiff<Flex, C>>,
    options: AttentionOptions,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (query, query_node) = query.into_parts();
    let (key, key_node) = key.into_parts();
    let (value, value_node) = value.into_parts();
    let (bias, bias_node) = bias.into_parts();
    let [query, key, value] = [&query, &key, &value].map(rows_dense);
    let bias = dense(&bias);
    let Attended { context, log_sums } = forward(&query, &key, &value, &bias, &options);
    let state = || Saved {
        query,
        key,
        value,
        bias,
        context: context.clone(),
        log_sums,
        options,
    };
    let nodes = [query_node, key_node, value_node, bias_node];
    record::<C, _, 4>(Attention, nodes, context.clone(), state)
}

#[derive(Debug)]
struct Attention;

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
        let saved = ops.state;
        let upstream = rows_dense(&gradients.consume::<Flex>(&ops.node));
        let shape = shape(&saved.query, &saved.key, &saved.value);
        let Shape {
            batch,
            heads: query_heads,
            key_value_heads,
            queries,
            keys,
            head_width,
            value_width,
        } = shape;
        let mut dquery = buffer(batch * query_heads * queries * head_width);
        let mut dkey = buffer(batch * key_value_heads * keys * head_width);
        let mut dvalue = buffer(batch * key_value_heads * keys * value_width);
        let [.., bias_parent] = &ops.parents;
        let mut dbias = bias_parent
            .as_ref()
            .map(|_| buffer(batch * query_heads * bias_sizes(&saved.bias).1[2]));
        attention::backward(
            &shape,
            [heads(&saved.query), heads(&saved.key), heads(&saved.value)],
            Results {
                context: heads(&saved.context),
                log_sums: &saved.log_sums,
            },
            Upstream {
                context: heads(&upstream),
                log_sums: None,
            },
            &saved.options.for_kernel(repeated(&saved.bias)),
            attention::Gradients {
                query: &mut dquery,
                query_strides: Strides::length_first(query_heads, queries, head_width),
                key: &mut dkey,
                key_strides: Strides::length_first(key_value_heads, keys, head_width),
                value: &mut dvalue,
                value_strides: Strides::length_first(key_value_heads, keys, value_width),
                bias: dbias.as_deref_mut(),
            },
        );
        let slopes = [
            Some(length_first(
                dquery,
                batch,
                query_heads,
                queries,
                head_width,
            )),
            Some(length_first(dkey, batch, key_value_heads, keys, head_width)),
            Some(length_first(
                dvalue,
                batch,
                key_value_heads,
                keys,
                value_width,
            )),
            dbias.map(|dbias| summed(dbias, &shape, &saved.bias)),
        ];
        for (parent, slopes) in ops.parents.iter().zip(slopes) {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                gradients.register::<Flex>(parent.id, slopes);
            }
        }
        let Saved {
            query,
            key,
            value,
            context,
            log_sums,
            ..
        } = saved;
        recycle([query, key, value, context, upstream]);
        keep(log_sums);
    }
}

/// A bias as the kernel reads it; none if it is empty.
fn repeated(bias: &FlexTensor) -> Option<Bias<'_>> {
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
fn bias_sizes(bias: &FlexTensor) -> (BiasOf, [usize; 3]) {
    match bias.layout().shape()[..] {
        [batch, heads, queries, keys] => (BiasOf::Pairs, [batch, heads, queries * keys]),
        [batch, heads, keys] => (BiasOf::Keys, [batch, heads, keys]),
        [heads, distances] => (BiasOf::Distances, [1, heads, distances]),
        ref other => panic!("attention: a bias of {} axes", other.len()),
    }
}

/// The gradient of the bias of each head, added up to the shape of the bias.
fn summed(slopes: Vec<f32>, shape: &Shape, bias: &FlexTensor) -> FlexTensor {
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

/// `[batch, heads, length, width]`, in memory `[batch, length, heads, width]`.
fn length_first(
    numbers: Vec<f32>,
    batch: usize,
    heads: usize,
    length: usize,
    width: usize,
) -> FlexTensor {
    tensor(numbers, [batch, length, heads, width]).permute(&[0, 2, 1, 3])
}

/// The tensor itself if the numbers of each row follow each other, otherwise a dense copy.
fn rows_dense(x: &FlexTensor) -> FlexTensor {
    let layout = x.layout();
    let fits = layout.strides()[3] == 1 && layout.has_positive_strides();
    if fits { x.clone() } else { dense(x) }
}

/// The rows of a tensor `[batch, heads, length, width]`.
fn heads(x: &FlexTensor) -> Heads<'_> {
    let strides = x.layout().strides();
    let stride = |axis: usize| usize::try_from(strides[axis]).expect("strides are positive");
    Heads {
        data: &x.storage::<f32>()[x.layout().start_offset()..],
        strides: Strides {
            batch: stride(0),
            head: stride(1),
            row: stride(2),
        },
    }
}

fn shape(query: &FlexTensor, key: &FlexTensor, value: &FlexTensor) -> Shape {
    let [query, key, value] = [query, key, value].map(|it| it.layout().shape());
    Shape {
        batch: query[0],
        heads: query[1],
        key_value_heads: key[1],
        queries: query[2],
        keys: key[2],
        head_width: query[3],
        value_width: value[3],
    }
}
