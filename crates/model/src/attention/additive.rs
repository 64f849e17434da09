//! The additive score: a feed-forward layer over query and key. Bahdanau et al. 2015.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::{Initializer, Linear};

/// `score · tanh(W_query query + W_key key)`. The projections are separate from the score so that cached keys are projected
/// only once.
#[derive(Module, Debug)]
pub struct Additive {
    query: Linear,
    key: Linear,
    score: Linear,
}

impl Additive {
    /// For queries and keys of these widths.
    pub fn new(
        [queries, keys]: [usize; 2],
        hidden_width: usize,
        std: f64,
        initializer: &mut Initializer,
    ) -> Self {
        Self {
            query: Linear::new(queries, hidden_width, false, std, initializer),
            key: Linear::new(keys, hidden_width, false, std, initializer),
            score: Linear::new(hidden_width, 1, false, std, initializer),
        }
    }

    /// Projects queries for [`Additive::scores`].
    pub fn project_queries<const D: usize>(&self, queries: Tensor<D>) -> Tensor<D> {
        self.query.forward(queries)
    }

    /// Projects keys for [`Additive::scores`].
    pub fn project_keys<const D: usize>(&self, keys: Tensor<D>) -> Tensor<D> {
        self.key.forward(keys)
    }

    /// The scores `[batch, heads, queries, keys]` of projected queries and keys.
    pub fn scores(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let [batch, heads, queries, hidden_width] = query.dims();
        let keys = key.dims()[2];
        let query = query.reshape([batch, heads, queries, 1, hidden_width]);
        let hidden = query + key.reshape([batch, heads, 1, keys, hidden_width]);
        let scores = self.score.forward(hidden.tanh());
        scores.reshape([batch, heads, queries, keys])
    }
}
