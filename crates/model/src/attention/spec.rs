//! What a model passes to an attention layer when it builds it: the role, the widths around it, positions and initialization.

use attentive_tensor::Mask;
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::refuse;

/// What a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Self-attention of an encoder: every position attends to the whole sequence.
    Bidirectional,
    /// Self-attention of a decoder: every position attends to itself and to earlier ones.
    Causal,
    /// Cross-attention: the positions of one sequence attend to another sequence.
    Cross,
}

impl Role {
    /// The mask of the role, without padding.
    pub fn mask(self) -> Mask {
        match self {
            Self::Causal => Mask::causal(),
            Self::Bidirectional | Self::Cross => Mask::none(),
        }
    }

    /// How many of `length` positions a query attends to on average, without padding.
    pub(crate) fn average_keys(self, length: usize) -> usize {
        match self {
            Self::Causal => length.div_ceil(2),
            Self::Bidirectional | Self::Cross => length,
        }
    }

    /// The same where a query attends to keys less than `window` positions away.
    pub(crate) fn average_keys_in_window(self, length: usize, window: usize) -> usize {
        let visible = match self {
            Self::Causal => window,
            Self::Bidirectional | Self::Cross => window.saturating_mul(2).saturating_sub(1),
        };
        self.average_keys(length).min(visible)
    }
}

/// Input and output widths of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Width of the queries.
    pub queries: usize,
    /// Width of the keys.
    pub keys: usize,
    /// Width of the values.
    pub values: usize,
    /// Width of the output.
    pub output: usize,
}

impl Widths {
    /// One width for everything, as inside a model.
    pub fn all(width: usize) -> Self {
        Self {
            queries: width,
            keys: width,
            values: width,
            output: width,
        }
    }
}

/// Positional information that has to be applied inside attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelativePositions {
    /// None: positions are added to the token embeddings, or there are none.
    None,
    /// Queries and keys are rotated.
    Rotary,
    /// A bias per head and distance is added to the scores.
    Bias,
}

/// The positions supported by kinds whose projections are optional: rotary ones, if there are heads to rotate.
pub(super) fn rotary_with_heads(heads: Option<usize>) -> &'static [RelativePositions] {
    match heads {
        Some(_) => &[RelativePositions::Rotary],
        None => &[],
    }
}

/// What building an attention layer needs besides its own config.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// What the layer attends to.
    pub role: Role,
    /// Its input and output widths.
    pub widths: Widths,
    /// The maximum sequence length.
    pub length: usize,
    /// The positions that the model applies inside attention.
    pub positions: RelativePositions,
    /// Standard deviation of the initial weights.
    pub init_std: f64,
    /// Standard deviation of the output projection, which writes into the residual stream.
    pub residual_std: f64,
}

impl AttentionSpec {
    /// A layer without relative positions and with an initial standard deviation of 0.02.
    pub fn new(role: Role, widths: Widths, length: usize) -> Self {
        Self {
            role,
            widths,
            length,
            positions: RelativePositions::None,
            init_std: 0.02,
            residual_std: 0.02,
        }
    }

    /// Refuses every role that is not listed.
    pub(super) fn require_role(
        &self,
        path: &str,
        kind: &str,
        roles: &[Role],
    ) -> Result<(), ConfigError> {
        if roles.contains(&self.role) {
            return Ok(());
        }
        let name = |role: &Role| match role {
            Role::Bidirectional => "bidirectional",
            Role::Causal => "causal",
            Role::Cross => "cross",
        };
        let supported: Vec<&str> = roles.iter().map(name).collect();
        refuse(
            &format!("{path}.kind"),
            format!(
                "{kind} attention cannot be {}; it can be {}",
                name(&self.role),
                supported.join(" or ")
            ),
        )
    }

    /// Refuses an output width other than the values', for a layer without projections.
    pub(super) fn require_value_width(&self, path: &str, kind: &str) -> Result<(), ConfigError> {
        let Widths { values, output, .. } = self.widths;
        if output == values {
            return Ok(());
        }
        refuse(
            &format!("{path}.kind"),
            format!(
                "{kind} attention without heads has no output projection, so its output has the width of the values, {values}, and not {output}; use equal widths"
            ),
        )
    }

    /// Refuses relative positions that are not listed: they would have no effect.
    pub(super) fn require_positions(
        &self,
        path: &str,
        kind: &str,
        supported: &[RelativePositions],
    ) -> Result<(), ConfigError> {
        if self.positions == RelativePositions::None || supported.contains(&self.positions) {
            return Ok(());
        }
        let name = match self.positions {
            RelativePositions::Bias => "a relative position bias",
            RelativePositions::Rotary | RelativePositions::None => "rotary positions",
        };
        let rotary = match supported.contains(&RelativePositions::Rotary) {
            true => ", rotary",
            false => "",
        };
        refuse(
            &format!("{path}.kind"),
            format!(
                "{kind} attention does not support {name}; choose learned, sinusoidal{rotary} or no positions"
            ),
        )
    }
}
