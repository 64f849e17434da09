//! Softmax inside chunks, and the average over rounds.

use attentive_tensor::{dropout, softmax};
use burn::tensor::{IndexingUpdateOp, Tensor};

use super::super::pattern::{Call, Context};
use super::Role;
use super::order::Order;

/// The score of a query and the key of its own position.
const OWN_SCORE: f32 = -1e5;

/// Keeps the length of a key of zeros from being divided by.
const EPSILON: f64 = 1e-6;

/// How much each query takes of each key that it meets.
pub(in crate::attention) struct Meeting {
    /// `[rows, chunks, chunk, keys seen]`
    weights: Tensor<4>,
    /// The share of each round, `[rows, rounds, padded, 1]`; none where there is but one.
    shares: Option<Tensor<4>>,
}

impl Meeting {
    pub(in crate::attention) fn new(vectors: Tensor<4>, order: &Order, role: Role) -> Self {
        let head_width = vectors.dims()[3];
        let squares = vectors.clone().square().mean_dim(3) + EPSILON;
        let key = vectors.clone() / (squares * head_width as f64).sqrt();
        let scores = order
            .sorted(vectors)
            .matmul(order.seen(order.sorted(key)).swap_dims(2, 3));
        let scores = masked(of_others(scores, order), order, role);
        let largest = scores.clone().detach().max_dim(3);
        let empty = largest.clone().equal_scalar(f32::NEG_INFINITY);
        let largest = largest.mask_fill(empty.clone(), 0.0);
        let exponentials = (scores - largest.clone()).exp();
        let sums = exponentials
            .clone()
            .sum_dim(3)
            .mask_fill(empty.clone(), 1.0);
        let [rows, chunks, chunk, _] = sums.dims();
        let shares = (order.rounds > 1).then(|| {
            let logarithms = (sums.clone().log() + largest).mask_fill(empty, f32::NEG_INFINITY);
            let logarithms = logarithms.reshape([rows * chunks * chunk, 1]);
            softmax(order.unsorted(logarithms).swap_dims(1, 3)).swap_dims(1, 3)
        });
        Self {
            weights: exponentials / sums,
            shares,
        }
    }

    /// How much queries take of keys other than themselves, by the softmax of their products.
    pub(in crate::attention) fn of_keys(
        query: Tensor<4>,
        key: Tensor<4>,
        order: &Order,
        role: Role,
    ) -> Self {
        let keys = order.seen(order.sorted(key));
        let scores = order.sorted(query).matmul(keys.swap_dims(2, 3));
        Self {
            weights: softmax(masked(scores, order, role)),
            shares: None,
        }
    }

    /// The context of each query of values `[batch, heads, length, width]`.
    pub(in crate::attention) fn gathered(
        &self,
        order: &Order,
        value: Tensor<4>,
        call: &mut Call,
    ) -> Context {
        let [batch, heads, length, width] = value.dims();
        if call.wants_weights() {
            return call.weigh(self.pairs(order, [batch, heads, length]), value);
        }
        let randomness = call.pass.randomness.as_deref_mut();
        let dropped = dropout(self.weights.clone(), call.dropout, randomness);
        let gathered = dropped.matmul(order.seen(order.sorted(value)));
        let merged = self.merged(gathered, order).narrow(1, 0, length);
        Context {
            context: merged.reshape([batch, heads, length, width]),
            weights: None,
        }
    }

    /// What queries gathered in their chunks `[rows, chunks, chunk, width]`, averaged over the rounds, `[rows, padded, width]`.
    pub(in crate::attention) fn merged(&self, gathered: Tensor<4>, order: &Order) -> Tensor<3> {
        let [rows, chunks, chunk, width] = gathered.dims();
        let rounds = order.unsorted(gathered.reshape([rows * chunks * chunk, width]));
        match &self.shares {
            Some(shares) => (rounds * shares.clone()).sum_dim(1).squeeze_dim(1),
            None => rounds.squeeze_dim(1),
        }
    }

    /// The weights of all pairs of positions, `[batch, heads, length, length]`, for an observer: a square, unlike the rest.
    pub(in crate::attention) fn pairs(
        &self,
        order: &Order,
        [batch, heads, length]: [usize; 3],
    ) -> Tensor<4> {
        let [rows, chunks, chunk, keys] = self.weights.dims();
        let positions = order.seen(order.cut(order.positions.clone()));
        let positions = positions
            .reshape([rows, chunks, 1, keys])
            .expand([rows, chunks, chunk, keys]);
        let empty = Tensor::zeros(
            [rows, chunks, chunk, order.padded()],
            &self.weights.device(),
        );
        let pairs = empty.scatter(3, positions, self.weights.clone(), IndexingUpdateOp::Add);
        self.merged(pairs, order)
            .narrow(1, 0, length)
            .narrow(2, 0, length)
            .reshape([batch, heads, length, length])
    }
}

/// Scores `[rows, chunks, chunk, keys seen]`, with one in the place of each query's product with itself.
fn of_others(scores: Tensor<4>, order: &Order) -> Tensor<4> {
    let shape = scores.shape();
    let [rows, chunks, chunk, keys] = scores.dims();
    let positions = order.cut(order.positions.clone());
    let of_queries = positions.clone().reshape([rows, chunks, chunk, 1]);
    let of_keys = order.seen(positions).reshape([rows, chunks, 1, keys]);
    let own = of_keys
        .expand(shape.clone())
        .equal(of_queries.expand(shape));
    scores.mask_fill(own, OWN_SCORE)
}

/// Scores `[rows, chunks, chunk, keys seen]`, minus infinity where a query must not look.
fn masked(scores: Tensor<4>, order: &Order, role: Role) -> Tensor<4> {
    let shape = scores.shape();
    let [rows, chunks, chunk, keys] = scores.dims();
    let positions = order.cut(order.positions.clone());
    let of_queries = positions.clone().reshape([rows, chunks, chunk, 1]);
    let of_queries = of_queries.expand(shape.clone());
    let of_keys = order.seen(positions).reshape([rows, chunks, 1, keys]);
    let of_keys = of_keys.expand(shape.clone());
    let mut scores = scores;
    if role == Role::Causal {
        scores = scores.mask_fill(of_keys.greater(of_queries), f32::NEG_INFINITY);
    }
    if let Some(padding) = &order.padding {
        // Padding does not even see itself.
        let padding = order.seen(order.cut(padding.clone()));
        let padding = padding.reshape([rows, chunks, 1, keys]);
        scores = scores.mask_fill(padding.expand(shape), f32::NEG_INFINITY);
    }
    scores
}
