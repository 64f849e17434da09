//! Greedy decoding and sampling: the next token from its logits.

use crate::{GenerationSettings, SettingsFileError};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::filters::{min_p, top_k, top_p, typical_p};
use crate::softmax::{max, softmax};
use crate::{GenerationError, SettingError};

/// The default `top_k` of transformers.
const TOP_K: usize = 50;

/// The last byte of the generator's key: separates sampling from other uses of the same seed, such as training windows (1) and
/// weights and dropout (0).
const DOMAIN: u8 = 2;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; zero is greedy decoding.
    pub temperature: f64,
    /// Samples from this many of the most probable tokens.
    pub top_k: Option<usize>,
    /// Samples from the nucleus: the most probable tokens whose probabilities add up to this.
    pub top_p: Option<f64>,
    /// Samples from tokens with at least this fraction of the highest probability.
    pub min_p: Option<f64>,
    /// Samples from the most typical tokens whose probabilities add up to this.
    pub typical_p: Option<f64>,
    /// The seed of the random numbers.
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
    /// Greedy decoding.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// The decoding that a folder's `do_sample` asks for, with transformers' defaults for sampling; none if it is not set.
    pub fn from_settings(settings: &GenerationSettings) -> Result<Option<Self>, SettingsFileError> {
        match settings.do_sample {
            None => return Ok(None),
            Some(false) => return Ok(Some(Self::greedy())),
            Some(true) => {}
        }
        let defaults = Self {
            temperature: 1.0,
            top_k: Some(TOP_K),
            ..Self::default()
        };
        defaults.with_settings(settings).map(Some)
    }

    /// Overrides these settings with those of a folder.
    pub fn with_settings(self, settings: &GenerationSettings) -> Result<Self, SettingsFileError> {
        settings.check_sampling()?;
        // Zero is only allowed in folders that do not sample.
        let temperature = settings.temperature.filter(|it| *it > 0.0);
        // Zero keeps only the most probable token.
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
                "top_k",
                self.top_k.unwrap_or(1) as f64,
                self.top_k != Some(0),
                "1 or more",
            ),
            (
                "top_p",
                self.top_p.unwrap_or(1.0),
                self.top_p.is_none_or(|p| p > 0.0 && p <= 1.0),
                "more than 0 and at most 1",
            ),
            (
                "min_p",
                self.min_p.unwrap_or(0.0),
                self.min_p.is_none_or(|p| (0.0..=1.0).contains(&p)),
                "0 to 1",
            ),
            (
                "typical_p",
                self.typical_p.unwrap_or(1.0),
                self.typical_p.is_none_or(|p| p > 0.0 && p <= 1.0),
                "more than 0 and at most 1",
            ),
        ])
    }

    /// Samples the next token, at `position` of its sequence. The result is a function of the logits, the position and the
    /// seed.
    ///
    /// Minus infinity masks a token; other logits that are not finite are an error.
    pub fn sample(&self, logits: Vec<f32>, position: usize) -> Result<u32, GenerationError> {
        if self.temperature == 0.0 {
            finite_max(&logits)?;
            return Ok(argmax(&logits));
        }
        Ok(self.draw(&self.probabilities(logits)?, position))
    }

    /// The distribution that tokens are sampled from; the temperature must not be zero.
    pub fn probabilities(&self, mut logits: Vec<f32>) -> Result<Vec<f64>, GenerationError> {
        let max = finite_max(&logits)?;
        for logit in &mut logits {
            // Relative to the maximum, so that no temperature makes a logit overflow.
            *logit = ((f64::from(*logit) - f64::from(max)) / self.temperature) as f32;
        }
        if let Some(count) = self.top_k {
            top_k(&mut logits, count);
        }
        if let Some(probability) = self.top_p {
            top_p(&mut logits, probability);
        }
        if let Some(fraction) = self.min_p {
            min_p(&mut logits, fraction);
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
        let mut remaining: f64 = generator.random();
        let mut last_possible = 0;
        for (id, probability) in probabilities.iter().enumerate() {
            if *probability > 0.0 {
                last_possible = id;
                remaining -= probability;
                if remaining < 0.0 {
                    break;
                }
            }
        }
        last_possible as u32
    }
}

/// The largest logit; an error unless it is finite and none is NaN.
fn finite_max(logits: &[f32]) -> Result<f32, GenerationError> {
    let max = max(logits);
    match max.is_finite() && !logits.iter().any(|logit| logit.is_nan()) {
        true => Ok(max),
        false => Err(GenerationError::NonFiniteLogits),
    }
}

/// The first of the largest logits.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_near};

    #[test]
    fn samples_follow_the_probabilities() {
        let sampling = Sampling::default();
        let logits = [0.2f32, 0.5, 0.3].map(f32::ln).to_vec();
        let mut counts = [0i32; 3];
        for position in 0..3000 {
            let id = sampling.sample(logits.clone(), position);
            counts[id.unwrap() as usize] += 1;
        }
        for (count, probability) in counts.into_iter().zip([0.2f64, 0.5, 0.3]) {
            let std = (3000.0 * probability * (1.0 - probability)).sqrt();
            assert_near("count", count, 3000.0 * probability, Scale::Of(std), 4.0);
        }
    }

    #[test]
    fn low_temperatures_and_small_nuclei_choose_the_argmax() {
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
            let id = sampling.sample(logits.clone(), 0).unwrap();
            assert_eq!(id, 1, "{sampling:?}");
        }
    }

    #[test]
    fn extreme_logits_and_temperatures_still_sample() {
        for temperature in [1e-300, 1e-30, 1.0, 1e30] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            let logits = vec![f32::MIN, f32::MAX, f32::NEG_INFINITY];
            let id = sampling.sample(logits, 0).unwrap();
            assert!(id < 2 && (id == 1 || temperature > 1.0), "{temperature}");
        }
    }

    #[test]
    fn logits_that_are_not_finite_are_an_error() {
        for sampling in [Sampling::greedy(), Sampling::default()] {
            for bad in [f32::NAN, f32::INFINITY] {
                let chosen = sampling.sample(vec![1.0, bad, 2.0], 0);
                assert!(matches!(chosen, Err(GenerationError::NonFiniteLogits)));
            }
        }
    }
}
