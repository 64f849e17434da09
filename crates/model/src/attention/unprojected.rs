//! A pattern without projections: one head of the raw queries, keys and values. The output has the width of the values.

use burn::module::Module;
use burn::tensor::Tensor;

use super::pattern::{AttendContext, Qkv};
use super::{Attention, AttentionInput, AttentionSpec, HeadsConfig, Pattern, Role};
use crate::{AttentionSite, ForwardContext, Initializer};

/// The pattern with projections around it if heads are configured, and without otherwise.
pub(super) fn with_optional_heads(
    pattern: Pattern,
    heads: Option<HeadsConfig>,
    dropout: f64,
    spec: &AttentionSpec,
    initializer: &mut Initializer,
) -> Attention {
    match heads {
        Some(heads) => heads.build(pattern, spec, initializer),
        None => Attention::Unprojected(Unprojected::new(pattern, dropout, spec.role)),
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

    /// The pattern of the layer.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The attention output of each query, `[batch, queries, width]`.
    pub fn forward(&self, input: AttentionInput, pass: &mut ForwardContext) -> Tensor<3> {
        let layer = input.layer;
        let (queries, memory) = input.queries_and_memory(self.role, pass);
        let context = AttendContext {
            site: AttentionSite {
                layer,
                role: self.role,
            },
            non_padding: memory.non_padding,
            dropout: self.dropout,
            pass,
        };
        let qkv = Qkv::one_head(queries, memory.keys, memory.values);
        self.pattern.attend(qkv, context).output.squeeze_dim(1)
    }
}
