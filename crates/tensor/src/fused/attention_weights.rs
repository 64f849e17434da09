//! The attention weights as a tensor: for those who look at them, ablate them, or want their gradient.

use attentive_kernels::attention::{self, WeightGradients};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::attention::{AttentionOptions, bias_sizes, repeated, summed};
use super::heads::{heads, rows_dense, shape};
use super::{buffer, dense, keep, numbers, record, recycle, tensor};

/// The weights, `[batch, heads, queries, keys]`.
pub(super) fn forward(
    query: &FlexTensor,
    key: &FlexTensor,
    bias: &FlexTensor,
    options: &AttentionOptions,
) -> FlexTensor {
    let [query, key] = [query, key].map(rows_dense);
    let bias = dense(bias);
    let shape = shape([&query, &key, &key]);
    let mut weights = buffer(shape.batch * shape.heads * shape.queries * shape.keys);
    let options = options.for_kernel(repeated(&bias));
    attention::weights(&shape, heads(&query), heads(&key), &options, &mut weights);
    tensor(
        weights,
        [shape.batch, shape.heads, shape.queries, shape.keys],
    )
}

pub(super) fn tracked<C: CheckpointStrategy>(
    query: FloatTensor<Autodiff<Flex, C>>,
    key: FloatTensor<Autodiff<Flex, C>>,
    bias: FloatTensor<Autodiff<Flex, C>>,
    options: &AttentionOptions,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (query, query_node) = query.into_parts();
    let (key, key_node) = key.into_parts();
    let (bias, bias_node) = bias.into_parts();
    let weights = forward(&query, &key, &bias, options);
    let state = || Saved {
        query,
        key,
        bias: dense(&bias),
        weights: weights.clone(),
        scale: options.scale as f32,
    };
    let nodes = [query_node, key_node, bias_node];
    record::<C, _, 3>(AttentionWeights, nodes, weights.clone(), state)
}

#[derive(Debug)]
struct AttentionWeights;

#[derive(Clone, Debug)]
struct Saved {
    query: FlexTensor,
    key: FlexTensor,
    bias: FlexTensor,
    weights: FlexTensor,
    scale: f32,
}

impl Backward<Flex, 3> for AttentionWeights {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let saved = ops.state;
        let upstream = dense(&gradients.consume::<Flex>(&ops.node));
        let [query, key] = [&saved.query, &saved.key].map(dense);
        let shape = shape([&query, &key, &key]);
        let [query_parent, key_parent, bias_parent] = &ops.parents;
        let count = |x: &FlexTensor| x.layout().num_elements();
        let mut dscores = buffer(count(&saved.weights));
        let (mut dquery, mut dkey) = (buffer(count(&query)), buffer(count(&key)));
        let mut dbias = bias_parent
            .as_ref()
            .map(|_| buffer(shape.batch * shape.heads * bias_sizes(&saved.bias).1[2]));
        attention::weights_backward(
            &shape,
            [&query, &key].map(numbers),
            [&saved.weights, &upstream].map(numbers),
            saved.scale,
            repeated(&saved.bias).as_ref(),
            WeightGradients {
                scores: &mut dscores,
                query: &mut dquery,
                key: &mut dkey,
                bias: dbias.as_deref_mut(),
            },
        );
        let like = |slopes: Vec<f32>, x: &FlexTensor| tensor(slopes, x.layout().shape().clone());
        let slopes = [
            (query_parent, Some(like(dquery, &query))),
            (key_parent, Some(like(dkey, &key))),
            (
                bias_parent,
                dbias.map(|dbias| summed(dbias, &shape, &saved.bias)),
            ),
        ];
        for (parent, slopes) in slopes {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                gradients.register::<Flex>(parent.id, slopes);
            }
        }
        keep(dscores);
        recycle([query, key, saved.query, saved.key, saved.weights, upstream]);
    }
}
