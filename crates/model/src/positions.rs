//! How a model knows the order of its tokens.

use serde::{Deserialize, Serialize};

/// The kind of positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionsConfig {
    /// A learned vector per position, added to the token's.
    Learned {},
    /// Queries and keys are rotated by their position. Su et al. 2021.
    Rotary(RotaryConfig),
}

/// Settings of rotary positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotaryConfig {
    /// The base of the wavelengths.
    #[serde(default = "default_theta")]
    pub theta: f64,
}

fn default_theta() -> f64 {
    10_000.0
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self {
            theta: default_theta(),
        }
    }
}
