//! Sliding-window attention: every query attends to the keys near it. Child et al. 2019; Jiang et al. 2023.

use super::full::Softmax;
use super::heads::with_heads;
use super::{Attention, AttentionSettings, AttentionSpec, CacheSize, Pattern, Role};
use crate::checks::size;
use crate::{ConfigError, Flops, Initializer};

with_heads! {
    /// Settings of sliding-window attention.
    pub struct SlidingWindowConfig {
        /// A query attends to the keys less than this many positions away; with 1, only to itself.
        pub window: usize,
    }

    /// `heads` heads with windows of this size.
    new(window: usize) {}
}

impl AttentionSettings for SlidingWindowConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        spec.require_role(path, "sliding-window", &[Role::Bidirectional, Role::Causal])?;
        size(&format!("{path}.window"), self.window)?;
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let window = Some(self.window);
        let pattern = Pattern::Softmax(Softmax {
            window,
            scale: None,
        });
        self.heads_config().build(pattern, spec, initializer)
    }

    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        let keys = role.average_keys_in_window(length, self.window);
        self.heads_config().flops(width, keys as u64)
    }

    fn cache(&self, width: usize) -> CacheSize {
        // The buffer has twice the window's capacity, so that its contents are rarely moved.
        let capacity = 2 * self.window as u64;
        CacheSize::Fixed(capacity.saturating_mul(self.heads_config().key_value_size(width)))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("sliding window of {}", self.window);
        self.heads_config().describe(&kind, width)
    }
}
