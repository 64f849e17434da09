//! Sliding-window attention: every query against the keys near it. Child et al. 2019; Jiang et al. 2023.

use super::full::Softmax;
use super::heads::with_heads;
use super::{Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place, Role};
use crate::checks::size;
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of sliding-window attention.
    pub struct SlidingWindowConfig {
        /// A query sees the keys less than this many positions away; with 1, itself alone.
        pub window: usize,
    }
}

impl AttentionSettings for SlidingWindowConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.serve(path, "sliding-window", &[Role::Bidirectional, Role::Causal])?;
        size(&format!("{path}.window"), self.window)?;
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let window = Some(self.window);
        let pattern = Pattern::Softmax(Softmax {
            window,
            scale: None,
        });
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let met = length.div_ceil(2).min(self.window);
        self.shared().operations(width, met as u64)
    }

    fn cache(&self, width: usize) -> CacheSize {
        // Room for as many again, so that old positions need to be moved out only once in a while.
        let held = 2 * self.window as u64;
        CacheSize::Fixed(held.saturating_mul(self.shared().key_value_numbers(width)))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("sliding window of {}", self.window);
        self.shared().describe(&kind, width)
    }
}
