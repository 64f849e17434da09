//! Choosing the next token from its scores.

use attentive_model::checkpoint::{CheckpointError, GenerationSettings};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::filters::{min_p, softmax, top_k, top_p, typical_p};
use crate::{GenerationError, SettingError};

/// Among how many tokens Hugging Face draws where a folder does not say.
const TOP_K: usize = 50;

/// The last byte of the generators' keys: tells these draws from those of other purposes with the same seed, such as
/// the windows of training (1) and the weights and dropout (0).
const DOMAIN: u8 = 2;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the scores; zero always takes the highest.
    pub temperature: f64,
    /// Only the highest scores are candidates.
    pub top_k: Option<usize>,
    /// Only the most likely tokens that together reach this probability are candidates.
    pub top_p: Option<f64>,
    /// Only tokens that have this part of the likeliest's probability are candidates.
    pub min_p: Option<f64>,
    /// Only the most typical tokens that together reach this probability are candidates.
    pub typical_p: Option<f64>,
    /// Where the randomness starts.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            typical_p: None,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Always the highest score.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// How a folder wants tokens to be chosen, with Hugging Face's defaults where it wants them drawn; none if it does not
    /// say.
    pub fn of_folder(settings: &GenerationSettings) -> Result<Option<Self>, CheckpointError> {
        match settings.drawn {
            None => return Ok(None),
            Some(false) => return Ok(Some(Self::greedy())),
            Some(true) => {}
        }
        let theirs = Self {
            temperature: 1.0,
            top_k: Some(TOP_K),
            ..Self::default()
        };
        theirs.with_folder(settings).map(Some)
    }

    /// These settings, with the numbers of a folder where it has them.
    pub fn with_folder(self, settings: &GenerationSettings) -> Result<Self, CheckpointError> {
        settings.check_drawing()?;
        // Zero is for folders that do not draw.
        let temperature = settings.temperature.filter(|it| *it > 0.0);
        // Of no probability there is still the likeliest token.
        let top_p = settings.top_p.map(|it| it.max(f64::MIN_POSITIVE));
        Ok(Self {
            temperature: temperature.unwrap_or(self.temperature),
            top_k: (settings.top_k.or(self.top_k)).filter(|count| *count > 0),
            top_p: top_p.or(self.top_p).filter(|it| *it < 1.0),
            min_p: settings.min_p.or(self.min_p),
            typical_p: (settings.typical_p.or(self.typical_p)).filter(|it| *it < 1.0),
            seed: self.seed,
        })
    }

    /// Whether every setting is in its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        SettingError::first([
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
                "min-p",
                self.min_p.unwrap_or(0.0),
                self.min_p.is_none_or(|p| (0.0..=1.0).contains(&p)),
                "0 to 1",
            ),
            (
                "typical-p",
                self.typical_p.unwrap_or(1.0),
                self.typical_p.is_none_or(|p| p > 0.0 && p <= 1.0),
                "more than 0 and at most 1",
            ),
        ])
    }

    /// The next token, given its scores and how many tokens stand before it. A function of these and of the seed.
    ///
    /// A score of minus infinity forbids a token; scores that are not numbers are an error.
    pub fn choose(&self, logits: Vec<f32>, position: usize) -> Result<u32, GenerationError> {
        if self.temperature == 0.0 {
            largest(&logits)?;
            return Ok(highest(&logits));
        }
        Ok(self.draw(&self.probabilities(logits)?, position))
    }

    /// With which probability each token is drawn, given their scores and a temperature that is not zero.
    pub fn probabilities(&self, mut logits: Vec<f32>) -> Result<Vec<f64>, GenerationError> {
        let largest = largest(&logits)?;
        for score in &mut logits {
            // Relative to the largest, so that no temperature makes a score overflow.
            *score = ((f64::from(*score) - f64::from(largest)) / self.temperature) as f32;
        }
        if let Some(count) = self.top_k {
            top_k(&mut logits, count);
        }
        if let Some(probability) = self.top_p {
            top_p(&mut logits, probability);
        }
        if let Some(part) = self.min_p {
            min_p(&mut logits, part);
        }
        if let Some(probability) = self.typical_p {
            typical_p(&mut logits, probability);
        }
        Ok(softmax(&logits))
    }

    fn draw(&self, probabilities: &[f64], position: usize) -> u32 {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&(position as u64).to_le_bytes());
        key[31] = DOMAIN;
        let mut generator = ChaCha8Rng::from_seed(key);
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

/// The largest score, if all are numbers.
fn largest(logits: &[f32]) -> Result<f32, GenerationError> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    match largest.is_finite() && !logits.iter().any(|score| score.is_nan()) {
        true => Ok(largest),
        false => Err(GenerationError::NotANumber),
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
            let id = sampling.choose(logits.clone(), position);
            counts[id.unwrap() as usize] += 1;
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
            let id = sampling.choose(logits.clone(), 0).unwrap();
            assert_eq!(id, 1, "{sampling:?}");
        }
    }

    #[test]
    fn extreme_scores_and_temperatures_still_choose() {
        for temperature in [1e-300, 1e-30, 1.0, 1e30] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            let logits = vec![f32::MIN, f32::MAX, f32::NEG_INFINITY];
            let id = sampling.choose(logits, 0).unwrap();
            assert!(id < 2 && (id == 1 || temperature > 1.0), "{temperature}");
        }
    }

    #[test]
    fn scores_that_are_not_numbers_are_an_error() {
        for sampling in [Sampling::greedy(), Sampling::default()] {
            for bad in [f32::NAN, f32::INFINITY] {
                let chosen = sampling.choose(vec![1.0, bad, 2.0], 0);
                assert!(matches!(chosen, Err(GenerationError::NotANumber)));
            }
        }
    }
}
