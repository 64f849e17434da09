//! The additive score: how well a key fits a query, by a layer with a tangent. Bahdanau et al. 2015.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::{Initializer, Linear};

/// `score · tanh(query map + key map)`. The maps are apart from the score, because keys that stay the same from query to query
/// are mapped once.
#[derive(Module, Debug)]
pub(crate) struct Additive {
    query: Linear,
    key: Linear,
    score: Linear,
}

impl Additive {
    /// For queries and keys of these widths.
    pub fn new(
        [queries, keys]: [usize; 2],
        hidden_width: usize,
        deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        Self {
            query: Linear::new(queries, hidden_width, false, deviation, initial),
            key: Linear::new(keys, hidden_width, false, deviation, initial),
            score: Linear::new(hidden_width, 1, false, deviation, initial),
        }
    }

    /// Queries as [`Additive::of`] takes them.
    pub fn map_queries<const D: usize>(&self, queries: Tensor<D>) -> Tensor<D> {
        self.query.forward(queries)
    }

    /// Keys as [`Additive::of`] takes them.
    pub fn map_keys<const D: usize>(&self, keys: Tensor<D>) -> Tensor<D> {
        self.key.forward(keys)
    }

    /// The scores `[batch, heads, queries, keys]` of mapped queries and keys.
    pub fn of(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let [batch, heads, queries, hidden] = query.dims();
        let keys = key.dims()[2];
        let query = query.reshape([batch, heads, queries, 1, hidden]);
        let each = query + key.reshape([batch, heads, 1, keys, hidden]);
        let scores = self.score.forward(each.tanh());
        scores.reshape([batch, heads, queries, keys])
    }
}
