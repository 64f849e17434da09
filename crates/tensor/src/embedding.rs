//! Embedding lookup.

use burn::tensor::{Int, Tensor};

use crate::fused;

/// The rows of `table` `[entries, width]` at `ids` `[batch, length]`: `[batch, length, width]`.
pub fn embedding(table: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    if fused::has_kernels(&table) {
        return fused::embedding(table, ids);
    }
    burn::tensor::module::embedding(table, ids)
}
