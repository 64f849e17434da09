//! Selecting batch rows: in a beam search, a sequence continues as several, or not at all.

use attentive_tensor::LinearState;
use burn::tensor::Tensor;

use super::{Cache, SelfAttentionCache};
use crate::indices::indices;

impl Cache {
    /// Replaces row `i` of the batch by row `rows[i]`. A row may be selected several times, or not at all.
    ///
    /// # Panics
    /// When a row is not in the batch.
    pub fn select(&mut self, rows: &[usize]) {
        let original_row = |row: &usize| self.original_rows.get(*row).copied().unwrap_or(*row);
        let original_rows: Vec<usize> = rows.iter().map(original_row).collect();
        // Beams of one sequence attend to the same memory, so its keys and values, the largest part, rarely have to be copied.
        let same_memory = original_rows == self.original_rows;
        let mut any_cached = false;
        for layer in &mut self.layers {
            if let Some(cached) = layer.self_attention.as_mut() {
                cached.select(rows);
                any_cached = true;
            }
            if let Some((keys, values)) = layer.memory.as_mut() {
                any_cached = true;
                if !same_memory {
                    (*keys, *values) = (select(keys, rows), select(values, rows));
                }
            }
        }
        if any_cached {
            self.original_rows = original_rows;
        }
    }
}

impl SelfAttentionCache {
    fn select(&mut self, rows: &[usize]) {
        match self {
            Self::KeyValues(cached) => {
                // Copies the unused capacity too, at most as much again, which avoids a reallocation later.
                let buffers = cached.buffers.take();
                cached.buffers = buffers.map(|all| all.map(|it| select(&it, rows)));
            }
            Self::Segment(cached) => {
                cached.inputs = cached.inputs.take().map(|it| select(&it, rows));
            }
            Self::State(cached) => {
                cached.state = cached.state.take().map(|state| LinearState {
                    kv_sums: select(&state.kv_sums, rows),
                    key_sums: select(&state.key_sums, rows),
                });
            }
        }
    }
}

/// Rows of the first axis.
fn select<const D: usize>(tensor: &Tensor<D>, rows: &[usize]) -> Tensor<D> {
    let batch = tensor.dims()[0];
    assert!(
        rows.iter().all(|row| *row < batch),
        "cache: rows {rows:?} are not in a batch of {batch}"
    );
    let rows = indices(rows.iter().copied(), &tensor.device());
    tensor.clone().select(0, rows)
}
