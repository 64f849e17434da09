//! Rows of a batch chosen anew: in a beam search a sequence goes on as several, or not at all.

use attentive_tensor::LinearState;
use burn::tensor::{Device, Int, Tensor};

use super::{Cache, Kept};

impl Cache {
    /// Makes row `i` of the batch what row `rows[i]` was. A row may be named several times, or not at all.
    ///
    /// # Panics
    /// When a row is named that the batch does not have.
    pub fn select(&mut self, rows: &[usize]) {
        let looked_at = |row: &usize| self.looked_at.get(*row).copied().unwrap_or(*row);
        let looked_at: Vec<usize> = rows.iter().map(looked_at).collect();
        // Beams of one sequence look at the same memory, so mostly there is nothing to move of what is largest.
        let same_memory = looked_at == self.looked_at;
        let mut some_kept = false;
        for layer in &mut self.layers {
            if let Some(kept) = layer.own.as_mut() {
                kept.select(rows);
                some_kept = true;
            }
            if let Some((keys, values)) = layer.memory.as_mut() {
                some_kept = true;
                if !same_memory {
                    (*keys, *values) = (chosen(keys, rows), chosen(values, rows));
                }
            }
        }
        if some_kept {
            self.looked_at = looked_at;
        }
    }
}

impl Kept {
    fn select(&mut self, rows: &[usize]) {
        match self {
            Self::KeyValues(held) => {
                // With the unused room, which is at most as large again and spares making it anew.
                held.held = held.held.take().map(|all| all.map(|it| chosen(&it, rows)));
            }
            Self::Segment(held) => held.held = held.held.take().map(|it| chosen(&it, rows)),
            Self::State(held) => {
                held.held = held.held.take().map(|state| LinearState {
                    sums: chosen(&state.sums, rows),
                    totals: chosen(&state.totals, rows),
                });
            }
        }
    }
}

/// The rows of a tensor's first axis.
fn chosen<const D: usize>(tensor: &Tensor<D>, rows: &[usize]) -> Tensor<D> {
    let batch = tensor.dims()[0];
    assert!(
        rows.iter().all(|row| *row < batch),
        "cache: rows {rows:?} were chosen from a batch of {batch}"
    );
    tensor.clone().select(0, indices(rows, &tensor.device()))
}

fn indices(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    Tensor::from_data(rows.as_slice(), device)
}
