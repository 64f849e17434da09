//! What blocks read and add to: one residual stream, or two that take turns, each of which can be found again from what comes
//! after it. Gomez et al. 2017; Kitaev et al. 2020.
//!
//! ```text
//! one:   x → x + attention(x) → x + feed_forward(x)        two:   attended += attention(fed)
//!                                                                 fed += feed_forward(attended)
//! ```

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::refuse;
use crate::{ConfigError, ModelConfig, NormPlacement};

/// Which residual streams a model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResidualConfig {
    /// One, which every sublayer reads and adds to.
    #[default]
    One,
    /// Two that start alike: attention reads the second and adds to the first, feed-forward the reverse. What reads the
    /// stack reads both, beside one another.
    Reversible,
}

impl ResidualConfig {
    /// Whether the settings can work in `model`.
    pub(crate) fn validate(self, model: &ModelConfig) -> Result<(), ConfigError> {
        if self == Self::One {
            return Ok(());
        }
        let blocks = || model.blocks.iter();
        if blocks().any(|block| block.cross.is_some()) {
            return refuse(
                "residual",
                "reversible streams have no place for a cross attention; use \"one\"",
            );
        }
        if blocks().any(|block| block.placement == NormPlacement::After) {
            return refuse(
                "residual",
                "a norm after the sum keeps streams from being reversible; place norms before, or use \"one\"",
            );
        }
        Ok(())
    }

    /// How many streams there are.
    pub(crate) fn streams(self) -> usize {
        match self {
            Self::One => 1,
            Self::Reversible => 2,
        }
    }
}

/// The residual streams of a pass, each `[batch, length, width]`.
#[derive(Clone, Debug)]
pub enum Residual {
    /// The only one.
    One(Tensor<3>),
    /// Two that take turns.
    Two {
        /// What attention adds to.
        attended: Tensor<3>,
        /// What feed-forward adds to.
        fed: Tensor<3>,
    },
}

impl Residual {
    /// Streams that start with these vectors.
    pub fn new(config: ResidualConfig, x: Tensor<3>) -> Self {
        match config {
            ResidualConfig::One => Self::One(x),
            ResidualConfig::Reversible => Self::Two {
                attended: x.clone(),
                fed: x,
            },
        }
    }

    /// All streams beside one another.
    pub fn joined(self) -> Tensor<3> {
        match self {
            Self::One(x) => x,
            Self::Two { attended, fed } => Tensor::cat(vec![attended, fed], 2),
        }
    }
}
