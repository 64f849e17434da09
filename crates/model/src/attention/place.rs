//! Where an attention stands in a model: what it is used for, and the sizes around it.

use attentive_tensor::Mask;
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::refuse;

/// What an attention is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Every position of a sequence looks at the whole sequence.
    Bidirectional,
    /// Every position looks at itself and the earlier ones.
    Causal,
    /// The positions of one sequence look at another sequence.
    Cross,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Bidirectional, Self::Causal, Self::Cross];

    /// Who may attend to whom, padding aside.
    pub fn mask(self) -> Mask {
        match self {
            Self::Causal => Mask::causal(),
            Self::Bidirectional | Self::Cross => Mask::none(),
        }
    }
}

/// Widths of what goes in and comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Of what asks.
    pub queries: usize,
    /// Of what is compared with.
    pub keys: usize,
    /// Of what is gathered.
    pub values: usize,
    /// Of the result.
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

/// How the positions of a model reach into its attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelativePositions {
    /// Not at all: they are added to the tokens, or there are none.
    None,
    /// Queries and keys are rotated.
    Rotary,
    /// A number per head and distance is added to the scores.
    Bias,
}

/// The positions that a kind can take which works on raw sequences or on heads, and leaves scores as they are.
pub(super) fn rotated(heads: Option<usize>) -> &'static [RelativePositions] {
    match heads {
        Some(_) => &[RelativePositions::Rotary],
        None => &[],
    }
}

/// What building an attention takes besides its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// What it is used for.
    pub role: Role,
    /// The widths around it.
    pub widths: Widths,
    /// The longest sequence that it will see.
    pub length: usize,
    /// What the model's positions ask of it.
    pub positions: RelativePositions,
    /// Spread of the initial weights.
    pub deviation: f64,
    /// The same for the map that writes into the residual stream.
    pub residual_deviation: f64,
}

impl Place {
    /// A place in a model of this width, whose positions do not reach into attention.
    pub fn new(role: Role, widths: Widths, length: usize) -> Self {
        Self {
            role,
            widths,
            length,
            positions: RelativePositions::None,
            deviation: 0.02,
            residual_deviation: 0.02,
        }
    }

    /// Refuses every role that is not listed.
    pub(super) fn serve(&self, path: &str, kind: &str, roles: &[Role]) -> Result<(), ConfigError> {
        if roles.contains(&self.role) {
            return Ok(());
        }
        let word = |role: &Role| match role {
            Role::Bidirectional => "bidirectional",
            Role::Causal => "causal",
            Role::Cross => "cross",
        };
        let served: Vec<&str> = roles.iter().map(word).collect();
        refuse(
            &format!("{path}.kind"),
            format!(
                "{kind} attention cannot be {}; it can be {}",
                word(&self.role),
                served.join(" or ")
            ),
        )
    }

    /// Refuses a result of another width than the values', of a kind that maps neither.
    pub(super) fn give_values(&self, path: &str, kind: &str) -> Result<(), ConfigError> {
        let Widths { values, output, .. } = self.widths;
        if output == values {
            return Ok(());
        }
        refuse(
            &format!("{path}.kind"),
            format!(
                "{kind} attention gives what it gathers, of width {values}, and not of width {output}; use values as wide as the result"
            ),
        )
    }

    /// Refuses positions that are not listed: they would have no effect.
    pub(super) fn take_positions(
        &self,
        path: &str,
        kind: &str,
        taken: &[RelativePositions],
    ) -> Result<(), ConfigError> {
        if self.positions == RelativePositions::None || taken.contains(&self.positions) {
            return Ok(());
        }
        let word = match self.positions {
            RelativePositions::Bias => "a bias by distance",
            RelativePositions::Rotary | RelativePositions::None => "rotary positions",
        };
        let rotary = match taken.contains(&RelativePositions::Rotary) {
            true => ", rotary",
            false => "",
        };
        refuse(
            &format!("{path}.kind"),
            format!(
                "{kind} attention has no use for {word}; choose learned, sinusoidal{rotary} or no positions"
            ),
        )
    }
}
