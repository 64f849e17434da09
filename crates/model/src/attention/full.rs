//! Full softmax attention: every query against every key that it may see. Vaswani et al. 2017.

use attentive_tensor::Scores;
use burn::module::Module;

use super::heads::with_heads;
use super::pattern::{Call, Context, Projected};
use super::{Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place};
use crate::checks::positive;
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of full softmax attention.
    pub struct FullAttentionConfig {
        /// What scores are multiplied with; one over the square root of a head's width unless said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scale: Option<f64>,
    }
}

impl AttentionSettings for FullAttentionConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        if let Some(scale) = self.scale {
            positive(&format!("{path}.scale"), scale)?;
        }
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let pattern = Pattern::Softmax(Softmax {
            window: None,
            scale: self.scale,
        });
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        // On average a query meets half of the positions.
        self.shared().operations(width, (length as u64).div_ceil(2))
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Growing(self.shared().key_value_numbers(width))
    }

    fn describe(&self, width: usize) -> String {
        self.shared().describe("full attention", width)
    }
}

/// The softmax of the scores of all keys, or of those in a window, weighs the values.
#[derive(Module, Debug)]
pub struct Softmax {
    #[module(skip)]
    pub(super) window: Option<usize>,
    /// What scores are multiplied with, if not one over the square root of a head's width.
    #[module(skip)]
    pub(super) scale: Option<f64>,
}

impl Softmax {
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let (heads, dropped) = call.remember(heads, self.window);
        let mut mask = call.mask(dropped);
        if let Some(window) = self.window {
            mask = mask.with_window(window);
        }
        let scores = Scores {
            bias: call.bias(&heads),
            ..Scores::new(mask, self.scale.unwrap_or_else(|| call.scale(&heads)))
        };
        call.attend(heads, &scores)
    }
}
