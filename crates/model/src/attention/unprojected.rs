//! Attention of sequences as they are: one head, and no maps around its pattern. What it gives is as wide as the values.

use burn::module::Module;

use super::pattern::{Call, Projected};
use super::{
    Attention, AttentionInput, AttentionOutput, HeadsConfig, MultiHead, Pattern, Place, Role,
};
use crate::{AttentionSite, Initializer, Pass};

/// A layer with maps around the pattern where heads are said, and without any otherwise.
pub(super) fn maybe_projected(
    pattern: Pattern,
    heads: Option<HeadsConfig>,
    dropout: f64,
    place: &Place,
    initial: &mut Initializer,
) -> Attention {
    match heads {
        Some(heads) => Attention::MultiHead(MultiHead::new(&heads, pattern, place, initial)),
        None => Attention::Unprojected(Unprojected::new(pattern, dropout, place.role)),
    }
}

/// A pattern on raw queries, keys and values.
#[derive(Module, Debug)]
pub struct Unprojected {
    pattern: Pattern,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    pub(super) role: Role,
}

impl Unprojected {
    /// Builds the layer around `pattern`.
    pub fn new(pattern: Pattern, dropout: f64, role: Role) -> Self {
        Self {
            pattern,
            dropout,
            role,
        }
    }

    /// How queries and keys meet.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Lets the queries gather.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        let sides = input.sides(self.role, pass);
        let call = Call {
            site: AttentionSite {
                layer: input.layer,
                role: self.role,
            },
            real: sides.real,
            dropout: self.dropout,
            pass,
        };
        let heads = Projected::one_head(sides.queries, sides.keys, sides.values);
        let attended = self.pattern.attend(heads, call);
        AttentionOutput {
            output: attended.context.squeeze_dim(1),
            weights: attended.weights,
        }
    }
}
