//! Choosing the next token from its scores.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::filters::{penalize_repetition, softmax, top_k, top_p};

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the scores; zero always takes the highest.
    pub temperature: f64,
    /// Only the highest scores are candidates.
    pub top_k: Option<usize>,
    /// Only the most likely tokens that together reach this probability are candidates.
    pub top_p: Option<f64>,
    /// Divides the scores of tokens that already occurred; one leaves them.
    pub repetition_penalty: f64,
    /// Where the randomness starts.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

/// A setting out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name}: {value} is out of range; use {range}")]
pub struct SamplingError {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The values that work.
    pub range: &'static str,
}

impl Sampling {
    /// Always the highest score.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Whether every setting is in its range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let checks = [
            (
                "temperature",
                self.temperature,
                self.temperature == 0.0 || positive(self.temperature),
                "0 or more",
            ),
            (
                "top-k",
                self.top_k.unwrap_or(1) as f64,
                self.top_k != Some(0),
                "1 or more",
            ),
            (
                "top-p",
                self.top_p.unwrap_or(1.0),
                self.top_p.is_none_or(|p| p > 0.0 && p <= 1.0),
                "more than 0 and at most 1",
            ),
            (
                "repetition-penalty",
                self.repetition_penalty,
                positive(self.repetition_penalty),
                "more than 0",
            ),
        ];
        match checks.into_iter().find(|(_, _, fits, _)| !fits) {
            Some((name, value, _, range)) => Err(SamplingError { name, value, range }),
            None => Ok(()),
        }
    }

    /// The next token, given its scores and all tokens before it. A function of the seed and of how many there are.
    pub fn choose(&self, mut logits: Vec<f32>, seen: &[u32]) -> u32 {
        penalize_repetition(&mut logits, seen, self.repetition_penalty);
        if self.temperature == 0.0 {
            return highest(&logits);
        }
        for score in &mut logits {
            *score = (f64::from(*score) / self.temperature) as f32;
        }
        if let Some(count) = self.top_k {
            top_k(&mut logits, count);
        }
        if let Some(probability) = self.top_p {
            top_p(&mut logits, probability);
        }
        self.draw(&softmax(&logits), seen.len())
    }

    fn draw(&self, probabilities: &[f64], position: usize) -> u32 {
        let mut generator = ChaCha8Rng::seed_from_u64(self.seed);
        generator.set_stream(position as u64);
        let mut left: f64 = generator.random();
        let mut last_possible = 0;
        for (id, probability) in probabilities.iter().enumerate() {
            if *probability > 0.0 {
                last_possible = id;
                left -= probability;
                if left < 0.0 {
                    break;
                }
            }
        }
        last_possible as u32
    }
}

/// The first of the highest scores.
fn highest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, score) in logits.iter().enumerate() {
        if *score > logits[best] {
            best = id;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_probabilities() {
        let sampling = Sampling::default();
        let logits = [0.2f32, 0.5, 0.3].map(f32::ln).to_vec();
        let mut counts = [0i32; 3];
        for position in 0..3000 {
            counts[sampling.choose(logits.clone(), &vec![9; position % 3000]) as usize] += 1;
        }
        for (count, expected) in counts.iter().zip([600, 1500, 900]) {
            assert!((*count - expected).abs() < 120, "{counts:?}");
        }
    }

    #[test]
    fn low_temperature_and_small_nuclei_take_the_highest() {
        let logits = vec![1.0, 4.0, 2.0];
        for sampling in [
            Sampling::greedy(),
            Sampling {
                top_k: Some(1),
                ..Sampling::default()
            },
            Sampling {
                top_p: Some(1e-9),
                ..Sampling::default()
            },
            Sampling {
                temperature: 1e-3,
                ..Sampling::default()
            },
        ] {
            assert_eq!(sampling.choose(logits.clone(), &[]), 1, "{sampling:?}");
        }
    }
}
