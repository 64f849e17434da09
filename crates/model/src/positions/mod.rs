//! Positions: embeddings added to the tokens', rotations of queries and keys, relative position biases on scores, or only the
//! causal mask.

mod alibi;
mod axial;
mod learned;
mod relative_position_bias;
mod rotary;
mod sinusoidal;
mod t5_buckets;

use attentive_tensor::RotaryAngles;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

pub use alibi::alibi_slopes;
pub use axial::{Axial, AxialConfig};
pub use learned::LearnedConfig;
pub(crate) use learned::interpolated;
pub use relative_position_bias::RelativePositionBias;
pub use rotary::{Llama3Scaling, RotaryConfig, RotaryFrequencies, RotaryScaling, YarnScaling};
pub use sinusoidal::{SinusoidLayout, SinusoidalConfig, sinusoid, sinusoid_shift};
pub use t5_buckets::{BucketDirection, T5BucketsConfig};

use crate::attention::{HeadsConfig, Role};
use crate::builders::from_kinds;
use crate::checks::refuse;
use crate::{ConfigError, StackConfig};

/// The kind of positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionsConfig {
    /// A learned embedding per position, added to the token's.
    Learned(LearnedConfig),
    /// A learned embedding per row and one per column of a grid, concatenated and added to the token's. Kitaev et al. 2020.
    Axial(AxialConfig),
    /// Sines and cosines of the position, added to √width times the token's embedding. Vaswani et al. 2017.
    Sinusoidal(SinusoidalConfig),
    /// Rotary positions: queries and keys are rotated by their position. Su et al. 2021.
    Rotary(RotaryConfig),
    /// A bias on scores, linear in the distance with a slope per head. Press et al. 2022.
    Alibi {},
    /// A learned bias on scores per head and bucket of distances. Raffel et al. 2020.
    T5Buckets(T5BucketsConfig),
    /// No positions: a causal mask alone lets a model infer the order. Haviv et al. 2022.
    None {},
}

from_kinds! {
    PositionsConfig:
    Learned(LearnedConfig),
    Axial(AxialConfig),
    Sinusoidal(SinusoidalConfig),
    Rotary(RotaryConfig),
    T5Buckets(T5BucketsConfig),
}

/// The interface of all kinds. A new kind adds its arm to each method, and nothing elsewhere.
impl PositionsConfig {
    /// Whether the settings are valid in `stack`.
    pub(crate) fn validate(&self, stack: &StackConfig) -> Result<(), ConfigError> {
        match self {
            Self::Learned(config) => config.validate("positions"),
            Self::Axial(config) => config.validate("positions", stack),
            Self::None {} => Ok(()),
            Self::Sinusoidal(_) if !stack.embedding_width().is_multiple_of(2) => refuse(
                "width",
                format!(
                    "{} is odd, and sinusoidal positions are pairs of sine and cosine; use an even width",
                    stack.embedding_width()
                ),
            ),
            Self::Sinusoidal(_) => Ok(()),
            Self::Rotary(config) => config.validate("positions"),
            Self::Alibi {} => Ok(()),
            Self::T5Buckets(config)
                if stack.role == Role::Causal
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

    /// Whether the settings are valid with the heads of one block; `path` is the path of its attention.
    pub(crate) fn validate_block(
        &self,
        path: &str,
        heads: &HeadsConfig,
        stack: &StackConfig,
    ) -> Result<(), ConfigError> {
        let (heads, head_width) = (heads.heads, heads.head_width(stack.width));
        let same = |field: &str, value: usize, first: usize, kind: &str| match value == first {
            true => Ok(()),
            false => refuse(
                &format!("{path}.{field}"),
                format!(
                    "{value} differs from the first block's {first}, and {kind} positions are shared; use {first}"
                ),
            ),
        };
        match self {
            Self::Learned(_) | Self::Axial(_) | Self::Sinusoidal(_) | Self::None {} => Ok(()),
            Self::Rotary(config) => {
                let min = config.min_head_width();
                if !head_width.is_multiple_of(2) || head_width < min {
                    let problem = match head_width.is_multiple_of(2) {
                        false => format!(
                            "{head_width} is odd, and rotary positions rotate pairs; use an even width"
                        ),
                        true => format!(
                            "{head_width} is too narrow for the scaling of the rotary positions; use {min} or more"
                        ),
                    };
                    return refuse(&format!("{path}.head_width"), problem);
                }
                same("head_width", head_width, stack.head_width(), "rotary")
            }
            Self::Alibi {} => same("heads", heads, stack.heads(), "alibi"),
            Self::T5Buckets(_) => same("heads", heads, stack.heads(), "t5_buckets"),
        }
    }

    /// The shape of the learned table, for kinds with one table.
    pub(crate) fn table_shape(&self, stack: &StackConfig) -> Option<[usize; 2]> {
        match self {
            Self::Learned(config) => Some([stack.length + config.offset, stack.embedding_width()]),
            Self::T5Buckets(config) => Some([config.buckets, stack.heads()]),
            Self::Axial(_)
            | Self::Sinusoidal(_)
            | Self::Rotary(_)
            | Self::Alibi {}
            | Self::None {} => None,
        }
    }

    /// How many absolute positions a model of this length accepts; none if only distances matter.
    pub fn position_count(&self, length: usize) -> Option<usize> {
        match self {
            Self::Learned(config) => Some(length + config.offset),
            Self::Axial(config) => Some(config.capacity()),
            Self::Sinusoidal(_) | Self::Rotary(_) => Some(i32::MAX as usize),
            Self::Alibi {} | Self::T5Buckets(_) | Self::None {} => None,
        }
    }

    /// The rotary angles, for rotary positions.
    pub(crate) fn rotary_angles(
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
