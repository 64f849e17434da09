//! The residual stream that blocks read and add to, or the two of a reversible network, whose inputs can be recomputed from
//! their outputs. Gomez et al. 2017; Kitaev et al. 2020.
//!
//! ```text
//! one:   x → x + attention(x) → x + feed_forward(x)        two:   x1 += attention(x2)
//!                                                                 x2 += feed_forward(x1)
//! ```

use attentive_tensor::add;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::block::NormPlacement;
use crate::checks::refuse;
use crate::{ConfigError, ForwardContext, Norm, Site, StackConfig};

/// Which residual streams a model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResidualConfig {
    /// One, which every sublayer reads and adds to.
    #[default]
    One,
    /// Two, both starting from the embeddings: attention reads the second and adds to the first, feed-forward the reverse.
    /// The output of the stack is their concatenation.
    Reversible,
}

impl ResidualConfig {
    /// Whether the settings are valid in `stack`.
    pub(crate) fn validate(self, stack: &StackConfig) -> Result<(), ConfigError> {
        if self == Self::One {
            return Ok(());
        }
        let blocks = || stack.blocks.iter();
        if blocks().any(|block| block.cross.is_some()) {
            return refuse(
                "residual",
                "reversible streams do not support cross-attention; use \"one\"",
            );
        }
        if blocks().any(|block| block.placement == NormPlacement::After) {
            return refuse(
                "residual",
                "a norm after the sum is not reversible; place norms before, or use \"one\"",
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

/// A residual stream, `[batch, length, width]`, and the output of the last sublayer, which is still to be added: the next norm
/// fuses the addition and saves a pass over memory.
#[derive(Clone, Debug)]
pub struct Stream {
    x: Tensor<3>,
    pending: Option<Tensor<3>>,
}

impl Stream {
    /// A stream with a pending addition.
    pub fn with_pending(x: Tensor<3>, pending: Tensor<3>) -> Self {
        Self {
            x,
            pending: Some(pending),
        }
    }

    /// The stream with its pending addition done.
    pub fn materialize(self) -> Tensor<3> {
        match self.pending {
            Some(pending) => add(self.x, pending),
            None => self.x,
        }
    }

    /// The norm of the stream.
    pub fn add_norm(self, norm: &Norm) -> Tensor<3> {
        match self.pending {
            Some(pending) => norm.add_norm(self.x, pending),
            None => norm.forward(self.x),
        }
    }

    /// The stream and its norm.
    pub fn add_norm_with_sum(self, norm: &Norm) -> [Tensor<3>; 2] {
        match self.pending {
            Some(pending) => norm.add_norm_with_sum(self.x, pending),
            None => norm.forward_with_input(self.x),
        }
    }

    /// Shows the stream to the observer, if there is one.
    pub(crate) fn observed(self, site: Site, pass: &mut ForwardContext) -> Self {
        match pass.observer {
            Some(_) => pass.observe(site, self.materialize()).into(),
            None => self,
        }
    }
}

impl From<Tensor<3>> for Stream {
    fn from(x: Tensor<3>) -> Self {
        Self { x, pending: None }
    }
}

/// The residual streams of a forward pass, each `[batch, length, width]`.
#[derive(Clone, Debug)]
pub enum Residual {
    /// The only one.
    One(Stream),
    /// The two of a reversible network.
    Two {
        /// The stream that attention adds to.
        x1: Tensor<3>,
        /// The stream that feed-forward adds to.
        x2: Tensor<3>,
    },
}

impl Residual {
    /// Streams that start from `x`.
    pub fn new(config: ResidualConfig, x: Tensor<3>) -> Self {
        match config {
            ResidualConfig::One => Self::One(x.into()),
            ResidualConfig::Reversible => Self::Two {
                x1: x.clone(),
                x2: x,
            },
        }
    }

    /// All streams, concatenated along the width.
    pub fn concatenated(self) -> Stream {
        match self {
            Self::One(stream) => stream,
            Self::Two { x1, x2 } => Tensor::cat(vec![x1, x2], 2).into(),
        }
    }
}
