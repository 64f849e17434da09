//! Vectors of texts, by which their meanings can be compared.

use std::ops::Range;

use attentive_model::Extras;

use crate::batches::{in_order, rows};
use crate::{Batches, Pooling, TaskError, Text};

/// How vectors are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedConfig {
    /// What they are made of.
    pub pooling: Pooling,
    /// Whether they are given length one.
    pub normalize: bool,
}

/// A vector for each text.
pub fn embed(
    batches: Batches,
    config: EmbedConfig,
    texts: &[Text],
) -> Result<Vec<Vec<f32>>, TaskError> {
    let encoded = batches.encode(texts)?;
    let mut found = Vec::new();
    for batch in batches.inputs(&encoded)? {
        let hidden = batches.model.hidden(batch.input, Extras::default());
        let [_, length, _] = hidden.states.dims();
        let states = rows(hidden.states)?;
        for (row, number) in batch.numbers.iter().enumerate() {
            let states = &states[row * length..(row + 1) * length];
            let mut vector = pooled(states, batch.real[row].clone(), config.pooling);
            if config.normalize {
                normalize(&mut vector);
            }
            found.push((*number, vector));
        }
    }
    Ok(in_order(texts.len(), found))
}

/// One vector of the real ones among `states`.
fn pooled(states: &[Vec<f32>], real: Range<usize>, pooling: Pooling) -> Vec<f32> {
    let width = states.first().map_or(0, Vec::len);
    let real = &states[real];
    let (Some(first), Some(last)) = (real.first(), real.last()) else {
        return vec![0.0; width];
    };
    match pooling {
        Pooling::First => first.clone(),
        Pooling::Last => last.clone(),
        Pooling::Mean => {
            let sum = |place: usize| {
                real.iter()
                    .map(|state| f64::from(state[place]))
                    .sum::<f64>()
            };
            let mean = |place| (sum(place) / real.len() as f64) as f32;
            (0..width).map(mean).collect()
        }
        Pooling::Largest => {
            let numbers = |place: usize| real.iter().map(move |state| state[place]);
            let largest = |place| numbers(place).fold(f32::NEG_INFINITY, f32::max);
            (0..width).map(largest).collect()
        }
    }
}

/// Gives a vector length one, unless it has none.
fn normalize(vector: &mut [f32]) {
    let square = |number: &f32| f64::from(*number) * f64::from(*number);
    let length = vector.iter().map(square).sum::<f64>().sqrt().max(1e-12);
    for number in vector {
        *number = (f64::from(*number) / length) as f32;
    }
}
