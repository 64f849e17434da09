//! How a model knows the order of its tokens: vectors added to theirs, rotations of queries and keys, biases on scores by
//! distance, or nothing but the mask.

mod alibi;
mod axial;
mod distance_bias;
mod learned;
mod rotary;
mod sinusoidal;
mod t5_buckets;

use attentive_tensor::RotaryAngles;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

pub use alibi::alibi_slopes;
pub use axial::{Axial, AxialConfig};
pub use distance_bias::DistanceBias;
pub use learned::LearnedConfig;
pub(crate) use learned::interpolated;
pub use rotary::{Llama3Scaling, RotaryConfig, RotaryFrequencies, RotaryScaling, YarnScaling};
pub use sinusoidal::{SinusoidLayout, SinusoidalConfig, sinusoid, sinusoid_shift};
pub use t5_buckets::{BucketDirection, T5BucketsConfig};

use crate::checks::refuse;
use crate::{ConfigError, HeadsConfig, ModelConfig, Role};

/// The kind of positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionsConfig {
    /// A learned vector per position, added to the token's.
    Learned(LearnedConfig),
    /// A learned vector per row and one per column of a grid, beside one another, added to the token's. Kitaev et al. 2020.
    Axial(AxialConfig),
    /// Sines and cosines of the position, added to √width times the token's vector. Vaswani et al. 2017.
    Sinusoidal(SinusoidalConfig),
    /// Queries and keys are rotated by their position. Su et al. 2021.
    Rotary(RotaryConfig),
    /// Scores fall with the distance, in each head at another rate. Press et al. 2022.
    Alibi {},
    /// Scores are biased by a learned number per head and bucket of distances. Raffel et al. 2020.
    T5Buckets(T5BucketsConfig),
    /// Nothing is added: a causal mask alone lets a model find the order. Haviv et al. 2022.
    None {},
}

/// What the rest of a model asks of any kind. A new kind adds its arm to each, and nothing elsewhere.
impl PositionsConfig {
    /// Whether the settings can work in `model`.
    pub(crate) fn validate(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        match self {
            Self::Learned(config) => config.validate("positions"),
            Self::Axial(config) => config.validate("positions", model),
            Self::None {} => Ok(()),
            Self::Sinusoidal(_) if !model.embedding_width().is_multiple_of(2) => refuse(
                "width",
                format!(
                    "{} is odd, and sinusoidal positions are pairs of sine and cosine; use an even width",
                    model.embedding_width()
                ),
            ),
            Self::Sinusoidal(_) => Ok(()),
            Self::Rotary(config) => config.validate("positions"),
            Self::Alibi {} => Ok(()),
            Self::T5Buckets(config)
                if model.role == Role::Causal
                    && config.direction == BucketDirection::Bidirectional =>
            {
                refuse(
                    "positions.direction",
                    "bidirectional has buckets for later keys, which a causal model never sees; use causal",
                )
            }
            Self::T5Buckets(config) => config.validate("positions"),
        }
    }

    /// Whether the settings can work with the attention of one block; `path` is where that stands.
    pub(crate) fn validate_block(
        &self,
        path: &str,
        heads: &HeadsConfig,
        model: &ModelConfig,
    ) -> Result<(), ConfigError> {
        let (heads, head_width) = (heads.heads, heads.head_width(model.width));
        let differs = |field: &str, own: usize, first: usize, kind: &str| match own == first {
            true => Ok(()),
            false => refuse(
                &format!("{path}.{field}"),
                format!(
                    "{own} differs from the first block's {first}, and {kind} positions are shared; use {first}"
                ),
            ),
        };
        match self {
            Self::Learned(_) | Self::Axial(_) | Self::Sinusoidal(_) | Self::None {} => Ok(()),
            Self::Rotary(config) => {
                let least = config.least_head_width();
                if !head_width.is_multiple_of(2) || head_width < least {
                    let problem = match head_width.is_multiple_of(2) {
                        false => format!(
                            "{head_width} is odd, and rotary positions rotate pairs; use an even width"
                        ),
                        true => format!(
                            "{head_width} is too narrow for the scaling of the rotary positions; use {least} or more"
                        ),
                    };
                    return refuse(&format!("{path}.head_width"), problem);
                }
                differs("head_width", head_width, model.head_width(), "rotary")
            }
            Self::Alibi {} => differs("heads", heads, model.heads(), "alibi"),
            Self::T5Buckets(_) => differs("heads", heads, model.heads(), "t5_buckets"),
        }
    }

    /// The shape of the one table that is learned, if one is.
    pub(crate) fn table(&self, model: &ModelConfig) -> Option<[usize; 2]> {
        match self {
            Self::Learned(config) => Some([model.length + config.offset, model.embedding_width()]),
            Self::T5Buckets(config) => Some([config.buckets, model.heads()]),
            Self::Axial(_)
            | Self::Sinusoidal(_)
            | Self::Rotary(_)
            | Self::Alibi {}
            | Self::None {} => None,
        }
    }

    /// The positions that can be given to a model of this length, from zero to less than this; none where only distances
    /// count, which nobody can give.
    pub fn countable(&self, length: usize) -> Option<usize> {
        match self {
            Self::Learned(config) => Some(length + config.offset),
            Self::Axial(config) => Some(config.places()),
            Self::Sinusoidal(_) | Self::Rotary(_) => Some(i32::MAX as usize),
            Self::Alibi {} | Self::T5Buckets(_) | Self::None {} => None,
        }
    }

    /// The angles of rotary positions, where these are.
    pub(crate) fn angles(
        &self,
        positions: &Tensor<2, Int>,
        head_width: usize,
    ) -> Option<RotaryAngles> {
        match self {
            Self::Rotary(config) => Some(config.angles(positions.clone(), head_width)),
            _ => None,
        }
    }
}
