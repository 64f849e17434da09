//! A bias for each pair of a query and a key, computed on the host: the definition of a pattern, where its weights are
//! materialized anyway or the queries are few.

use attentive_tensor::ScoreBias;
use burn::tensor::{Device, Tensor, TensorData};

/// The bias `bias(row, query, key)` of each pair, `[batch, 1, queries, keys]`.
pub(super) fn pairwise_bias(
    [batch, queries, keys]: [usize; 3],
    device: &Device,
    bias: impl Fn(usize, usize, usize) -> f32,
) -> ScoreBias {
    let mut values = Vec::with_capacity(batch * queries * keys);
    for (row, query) in (0..batch).flat_map(|row| (0..queries).map(move |it| (row, it))) {
        values.extend((0..keys).map(|key| bias(row, query, key)));
    }
    let values = TensorData::new(values, [batch, 1, queries, keys]);
    ScoreBias::Pairs(Tensor::from_data(values, device))
}

/// A mask as a bias: zero, or minus infinity.
pub(super) fn mask_bias(attends: bool) -> f32 {
    if attends { 0.0 } else { f32::NEG_INFINITY }
}
