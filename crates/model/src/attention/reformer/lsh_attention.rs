//! Softmax attention within chunks of sorted positions, and the average over hashes.

use attentive_tensor::{dropout, softmax};
use burn::tensor::{IndexingUpdateOp, Tensor};

use super::super::pattern::{AttendContext, PatternOutput};
use super::Role;
use super::chunk_order::ChunkOrder;

/// The score of a query and the key of its own position.
const SELF_SCORE: f32 = -1e5;

/// Prevents division by zero for a key of zeros.
const EPSILON: f64 = 1e-6;

/// The attention weights of each chunk.
pub(in crate::attention) struct ChunkedWeights {
    /// `[rows, chunks, chunk, visible keys]`
    weights: Tensor<4>,
    /// The weight of each hash in the average, `[rows, hashes, padded_length, 1]`; none if there is only one hash.
    hash_weights: Option<Tensor<4>>,
}

impl ChunkedWeights {
    /// LSH attention of shared queries and keys, `[batch, heads, length, head_width]`; the keys are normalized.
    pub(in crate::attention) fn lsh(vectors: Tensor<4>, order: &ChunkOrder, role: Role) -> Self {
        let head_width = vectors.dims()[3];
        let mean_squares = vectors.clone().square().mean_dim(3) + EPSILON;
        let key = vectors.clone() / (mean_squares * head_width as f64).sqrt();
        let scores = order
            .sort(vectors)
            .matmul(order.look_adjacent(order.sort(key)).swap_dims(2, 3));
        let scores = mask(mask_self(scores, order), order, role);
        let max = scores.clone().detach().max_dim(3);
        let empty = max.clone().equal_scalar(f32::NEG_INFINITY);
        let max = max.mask_fill(empty.clone(), 0.0);
        let exponentials = (scores - max.clone()).exp();
        let sums = exponentials
            .clone()
            .sum_dim(3)
            .mask_fill(empty.clone(), 1.0);
        let [rows, chunks, chunk, _] = sums.dims();
        let hash_weights = (order.hashes > 1).then(|| {
            let log_sum_exp = (sums.clone().log() + max).mask_fill(empty, f32::NEG_INFINITY);
            let log_sum_exp = log_sum_exp.reshape([rows * chunks * chunk, 1]);
            softmax(order.unsort(log_sum_exp).swap_dims(1, 3)).swap_dims(1, 3)
        });
        Self {
            weights: exponentials / sums,
            hash_weights,
        }
    }

    /// Plain softmax attention of scaled queries and keys.
    pub(in crate::attention) fn softmax(
        query: Tensor<4>,
        key: Tensor<4>,
        order: &ChunkOrder,
        role: Role,
    ) -> Self {
        let keys = order.look_adjacent(order.sort(key));
        let scores = order.sort(query).matmul(keys.swap_dims(2, 3));
        Self {
            weights: softmax(mask(scores, order, role)),
            hash_weights: None,
        }
    }

    /// Applies the weights to values `[batch, heads, length, width]`.
    pub(in crate::attention) fn attend(
        &self,
        order: &ChunkOrder,
        value: Tensor<4>,
        context: &mut AttendContext,
    ) -> PatternOutput {
        let [batch, heads, length, width] = value.dims();
        if context.wants_weights() {
            let weights = self.to_dense(order, [batch, heads, length]);
            return context.attend_with_weights(weights, value);
        }
        let randomness = context.pass.randomness.as_deref_mut();
        let weights = dropout(self.weights.clone(), context.dropout, randomness);
        let output = weights.matmul(order.look_adjacent(order.sort(value)));
        let output = self.average_hashes(output, order).narrow(1, 0, length);
        PatternOutput {
            output: output.reshape([batch, heads, length, width]),
            weights: None,
        }
    }

    /// Restores the order of the positions in `[rows, chunks, chunk, width]` and averages over the hashes: `[rows,
    /// padded_length, width]`.
    fn average_hashes(&self, chunked: Tensor<4>, order: &ChunkOrder) -> Tensor<3> {
        let [rows, chunks, chunk, width] = chunked.dims();
        let hashes = order.unsort(chunked.reshape([rows * chunks * chunk, width]));
        match &self.hash_weights {
            Some(weights) => (hashes * weights.clone()).sum_dim(1).squeeze_dim(1),
            None => hashes.squeeze_dim(1),
        }
    }

    /// The weights of all pairs of positions, `[batch, heads, length, length]`, for an observer.
    fn to_dense(&self, order: &ChunkOrder, [batch, heads, length]: [usize; 3]) -> Tensor<4> {
        let [rows, chunks, chunk, keys] = self.weights.dims();
        let positions = order.look_adjacent(order.chunked(order.positions.clone()));
        let positions = positions
            .reshape([rows, chunks, 1, keys])
            .expand([rows, chunks, chunk, keys]);
        let zeros = Tensor::zeros(
            [rows, chunks, chunk, order.padded_length()],
            &self.weights.device(),
        );
        let dense = zeros.scatter(3, positions, self.weights.clone(), IndexingUpdateOp::Add);
        self.average_hashes(dense, order)
            .narrow(1, 0, length)
            .narrow(2, 0, length)
            .reshape([batch, heads, length, length])
    }
}

/// Replaces each query's score with the key of its own position, in scores `[rows, chunks, chunk, visible keys]`.
fn mask_self(scores: Tensor<4>, order: &ChunkOrder) -> Tensor<4> {
    let shape = scores.shape();
    let [rows, chunks, chunk, keys] = scores.dims();
    let positions = order.chunked(order.positions.clone());
    let query_positions = positions.clone().reshape([rows, chunks, chunk, 1]);
    let key_positions = order
        .look_adjacent(positions)
        .reshape([rows, chunks, 1, keys]);
    let is_self = key_positions
        .expand(shape.clone())
        .equal(query_positions.expand(shape));
    scores.mask_fill(is_self, SELF_SCORE)
}

/// Applies the causal mask and the padding mask to scores `[rows, chunks, chunk, visible keys]`.
fn mask(scores: Tensor<4>, order: &ChunkOrder, role: Role) -> Tensor<4> {
    let shape = scores.shape();
    let [rows, chunks, chunk, keys] = scores.dims();
    let positions = order.chunked(order.positions.clone());
    let query_positions = positions.clone().reshape([rows, chunks, chunk, 1]);
    let query_positions = query_positions.expand(shape.clone());
    let key_positions = order
        .look_adjacent(positions)
        .reshape([rows, chunks, 1, keys]);
    let key_positions = key_positions.expand(shape.clone());
    let mut scores = scores;
    if role == Role::Causal {
        scores = scores.mask_fill(key_positions.greater(query_positions), f32::NEG_INFINITY);
    }
    if let Some(padding) = &order.padding {
        // Padding does not even attend to itself.
        let padding = order.look_adjacent(order.chunked(padding.clone()));
        let padding = padding.reshape([rows, chunks, 1, keys]);
        scores = scores.mask_fill(padding.expand(shape), f32::NEG_INFINITY);
    }
    scores
}
