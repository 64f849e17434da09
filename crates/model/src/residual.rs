//! What blocks read and add to: one residual stream, or two that take turns, each of which can be found again from what comes
//! after it. Gomez et al. 2017; Kitaev et al. 2020.
//!
//! ```text
//! one:   x → x + attention(x) → x + feed_forward(x)        two:   attended += attention(fed)
//!                                                                 fed += feed_forward(attended)
//! ```

use attentive_tensor::add;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::refuse;
use crate::{ConfigError, ModelConfig, Norm, NormPlacement, Pass, Site};

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

/// A residual stream, `[batch, length, width]`, and what a sublayer gave that is yet to be added: the next norm does that on its
/// way, instead of a pass over memory for it alone.
#[derive(Clone, Debug)]
pub struct Stream {
    x: Tensor<3>,
    branch: Option<Tensor<3>>,
}

impl Stream {
    /// A stream to which this will be added.
    pub fn with_branch(x: Tensor<3>, branch: Tensor<3>) -> Self {
        Self {
            x,
            branch: Some(branch),
        }
    }

    /// The stream itself.
    pub fn whole(self) -> Tensor<3> {
        match self.branch {
            Some(branch) => add(self.x, branch),
            None => self.x,
        }
    }

    /// Its norm.
    pub fn normed(self, norm: &Norm) -> Tensor<3> {
        match self.branch {
            Some(branch) => norm.forward_of_sum(self.x, branch),
            None => norm.forward(self.x),
        }
    }

    /// The stream and its norm.
    pub fn beside_norm(self, norm: &Norm) -> [Tensor<3>; 2] {
        match self.branch {
            Some(branch) => norm.forward_beside_sum(self.x, branch),
            None => norm.forward_beside(self.x),
        }
    }

    /// The same after an observer, if there is one, has seen it.
    pub(crate) fn observed(self, site: Site, pass: &mut Pass) -> Self {
        match pass.observer {
            Some(_) => pass.observe(site, self.whole()).into(),
            None => self,
        }
    }
}

impl From<Tensor<3>> for Stream {
    fn from(x: Tensor<3>) -> Self {
        Self { x, branch: None }
    }
}

/// The residual streams of a pass, each `[batch, length, width]`.
#[derive(Clone, Debug)]
pub enum Residual {
    /// The only one.
    One(Stream),
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
            ResidualConfig::One => Self::One(x.into()),
            ResidualConfig::Reversible => Self::Two {
                attended: x.clone(),
                fed: x,
            },
        }
    }

    /// All streams beside one another.
    pub fn joined(self) -> Stream {
        match self {
            Self::One(stream) => stream,
            Self::Two { attended, fed } => Tensor::cat(vec![attended, fed], 2).into(),
        }
    }
}
