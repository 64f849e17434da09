//! The attention weights as a tensor, to inspect, ablate or differentiate them.

use attentive_kernels::attention::{self, WeightGradients};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::attention::{AttentionOptions, score_bias};
use super::heads::{contiguous_rows, heads, shape};
use super::operation::{FusedOperation, run};
use super::score_bias::{bias_gradient_buffer, broadcast_bias, reduce_bias_gradient};
use super::{buffer, contiguous, data, recycle, release, single, tensor, tensor_like};
use crate::ScoreBias;

/// Attention weights, before dropout.
pub(crate) fn attention_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    bias: Option<ScoreBias>,
    options: AttentionOptions,
) -> Tensor<4> {
    let bias = score_bias(bias, &query.device());
    let inputs = [query.into_dispatch(), key.into_dispatch(), bias];
    let [weights] = run(AttentionWeights(options), inputs);
    Tensor::from_dispatch(weights)
}

#[derive(Clone, Debug)]
struct AttentionWeights(AttentionOptions);

#[derive(Clone, Debug)]
struct Saved {
    query: FlexTensor,
    key: FlexTensor,
    bias: FlexTensor,
    weights: FlexTensor,
}

impl FusedOperation<3, 1> for AttentionWeights {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 3]) -> [FlexTensor; 1] {
        let (outputs, saved) = self.forward_and_save(inputs);
        recycle([saved.query, saved.key]);
        outputs
    }

    /// The weights are `[batch, heads, queries, keys]`.
    fn forward_and_save(&self, [query, key, bias]: [FlexTensor; 3]) -> ([FlexTensor; 1], Saved) {
        let [query, key] = [&query, &key].map(contiguous_rows);
        let bias = contiguous(&bias);
        let shape = shape([&query, &key, &key]);
        let sizes = [shape.batch, shape.heads, shape.queries, shape.keys];
        let mut weights = buffer(sizes.iter().product());
        let options = self.0.for_kernel(broadcast_bias(&bias));
        attention::weights(&shape, heads(&query), heads(&key), &options, &mut weights);
        let weights = tensor(weights, sizes);
        let saved = Saved {
            query,
            key,
            bias,
            weights: weights.clone(),
        };
        ([weights], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        dys: [Option<FlexTensor>; 1],
        [_, _, bias_needs]: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let dweights = contiguous(&single(dys));
        let [query, key] = [&saved.query, &saved.key].map(contiguous);
        let shape = shape([&query, &key, &key]);
        let [mut dscores, mut dquery, mut dkey] =
            [&saved.weights, &query, &key].map(|x| buffer(data(x).len()));
        let mut dbias = bias_needs.then(|| bias_gradient_buffer(&shape, &saved.bias));
        attention::weights_backward(
            &shape,
            [&query, &key].map(data),
            [&saved.weights, &dweights].map(data),
            self.0.scale as f32,
            broadcast_bias(&saved.bias).as_ref(),
            WeightGradients {
                scores: &mut dscores,
                query: &mut dquery,
                key: &mut dkey,
                bias: dbias.as_deref_mut(),
            },
        );
        let dxs = [
            Some(tensor_like(dquery, &query)),
            Some(tensor_like(dkey, &key)),
            dbias.map(|dbias| reduce_bias_gradient(dbias, &shape, &saved.bias)),
        ];
        release(dscores);
        recycle([query, key, saved.query, saved.key, saved.weights, dweights]);
        dxs
    }
}
