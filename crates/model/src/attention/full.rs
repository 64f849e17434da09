//! Full softmax attention: every query attends to all keys that the mask allows. Vaswani et al. 2017.

use attentive_tensor::Scores;
use burn::module::Module;

use super::heads::with_heads;
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{Attention, AttentionSettings, AttentionSpec, Pattern};
use crate::checks::positive;
use crate::setters;
use crate::{ConfigError, Initializer};

with_heads! {
    /// Settings of full softmax attention.
    pub struct FullAttentionConfig {
        /// The scale of the scores; `1 / √head_width` by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scale: Option<f64>,
    }

    /// `heads` heads scaled by `1 / √head_width`.
    new() { scale: None }
}

impl FullAttentionConfig {
    setters! {
        with_scale(scale: f64 => Some);
    }
}

impl AttentionSettings for FullAttentionConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        if let Some(scale) = self.scale {
            positive(&format!("{path}.scale"), scale)?;
        }
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let pattern = Pattern::Softmax(Softmax {
            window: None,
            scale: self.scale,
        });
        self.heads_config().build(pattern, spec, initializer)
    }

    fn describe(&self, width: usize) -> String {
        self.heads_config().describe("full attention", width)
    }
}

/// Softmax attention over all keys, or over those in a window.
#[derive(Module, Debug)]
pub struct Softmax {
    #[module(skip)]
    pub(super) window: Option<usize>,
    /// The scale of the scores, if not `1 / √head_width`.
    #[module(skip)]
    pub(super) scale: Option<f64>,
}

impl Softmax {
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let (qkv, evicted) = context.append_to_cache(qkv, self.window);
        let mut mask = context.mask(evicted);
        if let Some(window) = self.window {
            mask = mask.with_window(window);
        }
        let scores = Scores {
            bias: context.bias(&qkv),
            ..Scores::new(mask, self.scale.unwrap_or_else(|| qkv.scale()))
        };
        context.attend(qkv, &scores)
    }
}
