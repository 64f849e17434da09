//! The attention weights as a tensor, to inspect, ablate or differentiate them.

use attentive_kernels::attention::{self, WeightGradients};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::attention::{AttentionOptions, bias_layout, broadcast_bias, reduce_bias_gradient};
use super::heads::{contiguous_rows, heads, shape};
use super::{buffer, contiguous, data, record, recycle, release, tensor};

/// The weights, `[batch, heads, queries, keys]`.
pub(super) fn forward(
    query: &FlexTensor,
    key: &FlexTensor,
    bias: &FlexTensor,
    options: &AttentionOptions,
) -> FlexTensor {
    let [query, key] = [query, key].map(contiguous_rows);
    let bias = contiguous(bias);
    let shape = shape([&query, &key, &key]);
    let mut weights = buffer(shape.batch * shape.heads * shape.queries * shape.keys);
    let options = options.for_kernel(broadcast_bias(&bias));
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
    let state = || SavedAttentionWeights {
        query,
        key,
        bias: contiguous(&bias),
        weights: weights.clone(),
        scale: options.scale as f32,
    };
    let nodes = [query_node, key_node, bias_node];
    record::<C, _, 3>(AttentionWeightsBackward, nodes, weights.clone(), state)
}

#[derive(Debug)]
struct AttentionWeightsBackward;

#[derive(Clone, Debug)]
struct SavedAttentionWeights {
    query: FlexTensor,
    key: FlexTensor,
    bias: FlexTensor,
    weights: FlexTensor,
    scale: f32,
}

impl Backward<Flex, 3> for AttentionWeightsBackward {
    type State = SavedAttentionWeights;

    fn backward(
        self,
        ops: Ops<SavedAttentionWeights, 3>,
        gradients: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let saved = ops.state;
        let dweights = contiguous(&gradients.consume::<Flex>(&ops.node));
        let [query, key] = [&saved.query, &saved.key].map(contiguous);
        let shape = shape([&query, &key, &key]);
        let [query_parent, key_parent, bias_parent] = &ops.parents;
        let count = |x: &FlexTensor| x.layout().num_elements();
        let mut dscores = buffer(count(&saved.weights));
        let (mut dquery, mut dkey) = (buffer(count(&query)), buffer(count(&key)));
        let mut dbias = bias_parent
            .as_ref()
            .map(|_| buffer(shape.batch * shape.heads * bias_layout(&saved.bias).1[2]));
        attention::weights_backward(
            &shape,
            [&query, &key].map(data),
            [&saved.weights, &dweights].map(data),
            saved.scale,
            broadcast_bias(&saved.bias).as_ref(),
            WeightGradients {
                scores: &mut dscores,
                query: &mut dquery,
                key: &mut dkey,
                bias: dbias.as_deref_mut(),
            },
        );
        let like =
            |gradient: Vec<f32>, x: &FlexTensor| tensor(gradient, x.layout().shape().clone());
        let input_gradients = [
            (query_parent, Some(like(dquery, &query))),
            (key_parent, Some(like(dkey, &key))),
            (
                bias_parent,
                dbias.map(|dbias| reduce_bias_gradient(dbias, &shape, &saved.bias)),
            ),
        ];
        for (parent, gradient) in input_gradients {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<Flex>(parent.id, gradient);
            }
        }
        release(dscores);
        recycle([query, key, saved.query, saved.key, saved.weights, dweights]);
    }
}
