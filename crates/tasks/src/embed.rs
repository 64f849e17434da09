//! Text embeddings.

use std::ops::Range;

use attentive_model::ForwardOptions;

use crate::batcher::{in_order, rows};
use crate::{Batcher, Pooling, TaskError, Text};

/// How hidden states become an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedConfig {
    /// Pooling over the tokens.
    pub pooling: Pooling,
    /// Whether embeddings are L2-normalized.
    pub normalize: bool,
}

/// The embedding of each text.
pub fn embed(
    batcher: Batcher,
    config: EmbedConfig,
    texts: &[Text],
) -> Result<Vec<Vec<f32>>, TaskError> {
    let encoded = batcher.encode(texts)?;
    let mut found = Vec::new();
    for batch in batcher.batches(&encoded)? {
        let hidden = batcher
            .model
            .hidden_states(batch.input, ForwardOptions::default());
        let [_, length, _] = hidden.states.dims();
        let states = rows(hidden.states)?;
        for (row, index) in batch.indices.iter().enumerate() {
            let states = &states[row * length..(row + 1) * length];
            let mut vector = pool(states, batch.non_padding[row].clone(), config.pooling);
            if config.normalize {
                normalize(&mut vector);
            }
            found.push((*index, vector));
        }
    }
    Ok(in_order(texts.len(), found))
}

/// Pools the states that are not padding.
fn pool(states: &[Vec<f32>], non_padding: Range<usize>, pooling: Pooling) -> Vec<f32> {
    let width = states.first().map_or(0, Vec::len);
    let states = &states[non_padding];
    let (Some(first), Some(last)) = (states.first(), states.last()) else {
        return vec![0.0; width];
    };
    match pooling {
        Pooling::Cls => first.clone(),
        Pooling::LastToken => last.clone(),
        Pooling::Mean => {
            let sum = |channel: usize| {
                states
                    .iter()
                    .map(|state| f64::from(state[channel]))
                    .sum::<f64>()
            };
            let mean = |channel| (sum(channel) / states.len() as f64) as f32;
            (0..width).map(mean).collect()
        }
        Pooling::Max => {
            let values = |channel: usize| states.iter().map(move |state| state[channel]);
            let max = |channel| values(channel).fold(f32::NEG_INFINITY, f32::max);
            (0..width).map(max).collect()
        }
    }
}

/// L2-normalizes a vector, unless it is zero.
fn normalize(vector: &mut [f32]) {
    let square = |value: &f32| f64::from(*value) * f64::from(*value);
    let norm = vector.iter().map(square).sum::<f64>().sqrt().max(1e-12);
    for value in vector {
        *value = (f64::from(*value) / norm) as f32;
    }
}
