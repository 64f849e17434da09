//! Rotary positions (RoPE, Su et al. 2021) and their scaling to longer contexts than a model was trained on.
//!
//! The scalings are those of Hugging Face's `modeling_rope_utils`: `linear`, `ntk` (there `dynamic`), `yarn` and `llama3`.

use std::f64::consts::TAU;

use attentive_tensor::RotaryAngles;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::builders::from_kinds;
use crate::checks::{at_least_one, positive, refuse, size};
use crate::setters;

/// Settings of rotary positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotaryConfig {
    /// The base of the wavelengths.
    #[serde(default = "default_theta")]
    pub theta: f64,
    /// The scaling of the wavelengths, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RotaryScaling>,
}

fn default_theta() -> f64 {
    10_000.0
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self {
            theta: default_theta(),
            scaling: None,
        }
    }
}

/// The scaling of the wavelengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// Position interpolation: all wavelengths times `factor`. Chen et al. 2023.
    Linear {
        /// How much longer the context becomes.
        factor: f64,
    },
    /// Dynamic NTK, Hugging Face's `dynamic`: the base grows once a text is longer than `original_length`, which stretches long
    /// wavelengths and leaves short ones unchanged.
    ///
    /// The base follows the largest position of each pass. As in Hugging Face, cached keys are not rotated again, so beyond
    /// `original_length` decoding with a cache differs slightly from a pass over the whole text.
    Ntk {
        /// How fast the base grows with the length.
        factor: f64,
        /// The length up to which nothing changes; Hugging Face's `max_position_embeddings`.
        original_length: usize,
    },
    /// Long wavelengths times `factor`, short ones unchanged, a ramp between; and larger scores. Peng et al. 2023.
    Yarn(YarnScaling),
    /// Long wavelengths times `factor`, short ones unchanged, a smooth transition between. Llama 3.1, 2024.
    Llama3(Llama3Scaling),
}

from_kinds!(RotaryScaling: Yarn(YarnScaling), Llama3(Llama3Scaling));

/// Settings of YaRN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct YarnScaling {
    /// How much longer the context becomes.
    pub factor: f64,
    /// The context length that the model was trained on.
    pub original_length: usize,
    /// Wavelengths with more rotations than this within the original length are unchanged.
    #[serde(default = "default_beta_fast")]
    pub beta_fast: f64,
    /// Wavelengths with fewer rotations than this within the original length are fully scaled.
    #[serde(default = "default_beta_slow")]
    pub beta_slow: f64,
    /// Multiplies rotated queries and keys; `0.1 · ln(factor) + 1` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// Whether the ends of the ramp are rounded to whole pairs.
    #[serde(default = "yes")]
    pub truncate: bool,
}

impl YarnScaling {
    /// For contexts that are `factor` times longer than in training.
    pub fn new(factor: f64, original_length: usize) -> Self {
        Self {
            factor,
            original_length,
            beta_fast: default_beta_fast(),
            beta_slow: default_beta_slow(),
            attention_factor: None,
            truncate: yes(),
        }
    }

    setters! {
        with_beta_fast(beta_fast: f64);
        with_beta_slow(beta_slow: f64);
        with_attention_factor(attention_factor: f64 => Some);
        with_truncate(truncate: bool);
    }
}

/// Settings of Llama 3.1's scaling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llama3Scaling {
    /// How much longer the context becomes.
    pub factor: f64,
    /// The context length that the model was trained on.
    pub original_length: usize,
    /// Wavelengths longer than the original length divided by this are fully scaled.
    #[serde(default = "default_low")]
    pub low_frequency_factor: f64,
    /// Wavelengths shorter than the original length divided by this are unchanged.
    #[serde(default = "default_high")]
    pub high_frequency_factor: f64,
}

impl Llama3Scaling {
    /// For contexts that are `factor` times longer than in training.
    pub fn new(factor: f64, original_length: usize) -> Self {
        Self {
            factor,
            original_length,
            low_frequency_factor: default_low(),
            high_frequency_factor: default_high(),
        }
    }

    setters! {
        with_low_frequency_factor(low_frequency_factor: f64);
        with_high_frequency_factor(high_frequency_factor: f64);
    }
}

fn default_beta_fast() -> f64 {
    32.0
}

fn default_beta_slow() -> f64 {
    1.0
}

fn default_low() -> f64 {
    1.0
}

fn default_high() -> f64 {
    4.0
}

fn yes() -> bool {
    true
}

/// The frequency of each pair of features, in radians per position.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryFrequencies {
    /// One per pair.
    pub frequencies: Vec<f64>,
    /// Multiplies cosines and sines, and so rotated queries and keys.
    pub attention_factor: f64,
}

impl RotaryConfig {
    /// Sets [`scaling`](#structfield.scaling).
    #[must_use]
    pub fn with_scaling(mut self, scaling: impl Into<RotaryScaling>) -> Self {
        self.scaling = Some(scaling.into());
        self
    }

    setters! {
        with_theta(theta: f64);
    }

    /// Whether the settings are valid; `path` is the config's path for error messages.
    pub(super) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        positive(&format!("{path}.theta"), self.theta)?;
        let at = |field: &str| format!("{path}.scaling.{field}");
        match &self.scaling {
            None => Ok(()),
            Some(RotaryScaling::Linear { factor }) => at_least_one(&at("factor"), *factor),
            Some(RotaryScaling::Ntk {
                factor,
                original_length,
            }) => {
                at_least_one(&at("factor"), *factor)?;
                size(&at("original_length"), *original_length)
            }
            Some(RotaryScaling::Yarn(yarn)) => {
                if self.theta <= 1.0 {
                    let problem =
                        format!("{} is out of range; use more than 1 with yarn", self.theta);
                    return refuse(&format!("{path}.theta"), problem);
                }
                at_least_one(&at("factor"), yarn.factor)?;
                size(&at("original_length"), yarn.original_length)?;
                positive(&at("beta_slow"), yarn.beta_slow)?;
                above(
                    &at("beta_fast"),
                    yarn.beta_fast,
                    "beta_slow",
                    yarn.beta_slow,
                )?;
                positive(&at("attention_factor"), yarn.attention_factor())
            }
            Some(RotaryScaling::Llama3(llama)) => {
                at_least_one(&at("factor"), llama.factor)?;
                size(&at("original_length"), llama.original_length)?;
                let (low, high) = (llama.low_frequency_factor, llama.high_frequency_factor);
                positive(&at("low_frequency_factor"), low)?;
                above(
                    &at("high_frequency_factor"),
                    high,
                    "low_frequency_factor",
                    low,
                )
            }
        }
    }

    /// The minimum width of a head.
    pub(super) fn min_head_width(&self) -> usize {
        match &self.scaling {
            // The exponent of the base is `width / (width - 2)`.
            Some(RotaryScaling::Ntk { .. }) => 4,
            _ => 2,
        }
    }

    /// The frequencies of heads of this width, for texts of this length (only `ntk` depends on it).
    pub fn frequencies(&self, head_width: usize, length: usize) -> RotaryFrequencies {
        let width = head_width as f64;
        let with_base = |theta: f64| {
            let pairs = 0..head_width / 2;
            let frequency = |i: usize| theta.powf(-2.0 * i as f64 / width);
            pairs.map(frequency).collect::<Vec<f64>>()
        };
        let unscaled_scores = |frequencies| RotaryFrequencies {
            frequencies,
            attention_factor: 1.0,
        };
        let mapped =
            |scale: &dyn Fn(f64) -> f64| with_base(self.theta).into_iter().map(scale).collect();
        match &self.scaling {
            None => unscaled_scores(with_base(self.theta)),
            Some(RotaryScaling::Linear { factor }) => unscaled_scores(mapped(&|it| it / factor)),
            Some(RotaryScaling::Ntk {
                factor,
                original_length,
            }) => {
                let ratio = length.max(*original_length) as f64 / *original_length as f64;
                let growth = (factor * ratio - (factor - 1.0)).powf(width / (width - 2.0));
                unscaled_scores(with_base(self.theta * growth))
            }
            Some(RotaryScaling::Llama3(llama)) => unscaled_scores(mapped(&|it| llama.scale(it))),
            Some(RotaryScaling::Yarn(yarn)) => RotaryFrequencies {
                frequencies: yarn.scale(with_base(self.theta), self.theta, width),
                attention_factor: yarn.attention_factor(),
            },
        }
    }

    /// The angles of `positions` `[batch or 1, length]`.
    pub fn angles(&self, positions: Tensor<2, Int>, head_width: usize) -> RotaryAngles {
        let length = match &self.scaling {
            Some(RotaryScaling::Ntk { .. }) => {
                positions.clone().max().into_scalar::<i64>().max(0) as usize + 1
            }
            _ => 0,
        };
        let RotaryFrequencies {
            frequencies,
            attention_factor,
        } = self.frequencies(head_width, length);
        RotaryAngles::from_frequencies(positions, &frequencies, attention_factor)
    }
}

impl YarnScaling {
    /// The factor of rotated queries and keys.
    pub fn attention_factor(&self) -> f64 {
        let default = 0.1 * self.factor.max(1.0).ln() + 1.0;
        self.attention_factor.unwrap_or(default)
    }

    fn scale(&self, frequencies: Vec<f64>, theta: f64, width: f64) -> Vec<f64> {
        // The (fractional) index of the pair with this many rotations within the original length.
        let pair = |rotations: f64| {
            width * (self.original_length as f64 / (rotations * TAU)).ln() / (2.0 * theta.ln())
        };
        let (mut low, mut high) = (pair(self.beta_fast), pair(self.beta_slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(width - 1.0));
        if low == high {
            high += 0.001;
        }
        let scale = |(i, frequency): (usize, f64)| {
            let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            frequency / self.factor * ramp + frequency * (1.0 - ramp)
        };
        frequencies.into_iter().enumerate().map(scale).collect()
    }
}

impl Llama3Scaling {
    fn scale(&self, frequency: f64) -> f64 {
        let (low, high) = (self.low_frequency_factor, self.high_frequency_factor);
        let rotations = self.original_length as f64 * frequency / TAU;
        if rotations > high {
            frequency
        } else if rotations < low {
            frequency / self.factor
        } else {
            let smooth = (rotations - low) / (high - low);
            (1.0 - smooth) * frequency / self.factor + smooth * frequency
        }
    }
}

/// Refuses values that are infinite or not larger than another setting.
fn above(field: &str, value: f64, other: &str, limit: f64) -> Result<(), ConfigError> {
    if value > limit && value.is_finite() {
        return Ok(());
    }
    refuse(
        field,
        format!("{value} is out of range; use more than {other}, which is {limit}"),
    )
}
