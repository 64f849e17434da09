//! Attention: how a position gathers from the others. One struct of settings per kind.

mod multi_head;

pub use multi_head::{FullAttentionConfig, MultiHead};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, Operations};

/// Which attention a block has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AttentionConfig {
    /// Every query against every key it may see.
    Full(FullAttentionConfig),
}

/// What the rest of a model asks of any attention. A new kind adds its arm to each, and nothing elsewhere.
impl AttentionConfig {
    /// Whether the settings can work in a model of this width; `path` is where they stand.
    pub fn validate(&self, path: &str, width: usize) -> Result<(), ConfigError> {
        match self {
            Self::Full(config) => config.validate(path, width),
        }
    }

    /// Query heads.
    pub fn heads(&self) -> usize {
        match self {
            Self::Full(config) => config.heads,
        }
    }

    /// Width of one head.
    pub fn head_width(&self, width: usize) -> usize {
        match self {
            Self::Full(config) => config.head_width(width),
        }
    }

    /// The same settings with implied sizes written out.
    #[must_use]
    pub fn canonical(&self, width: usize) -> Self {
        match self {
            Self::Full(config) => Self::Full(FullAttentionConfig {
                key_value_heads: Some(config.key_value_heads()),
                head_width: Some(config.head_width(width)),
                ..config.clone()
            }),
        }
    }

    /// The same settings without dropout.
    #[must_use]
    pub fn without_dropout(&self) -> Self {
        match self {
            Self::Full(config) => Self::Full(FullAttentionConfig {
                dropout: 0.0,
                ..config.clone()
            }),
        }
    }

    /// Operations per token in a model of this width, at this length.
    pub fn operations(&self, width: usize, length: usize) -> Operations {
        match self {
            Self::Full(config) => config.operations(width, length),
        }
    }

    /// Numbers that one more position adds to a cache.
    pub fn cache_numbers(&self, width: usize) -> u64 {
        match self {
            Self::Full(config) => 2 * (config.key_value_heads() * config.head_width(width)) as u64,
        }
    }

    /// A few words for a person.
    pub fn describe(&self, width: usize) -> String {
        match self {
            Self::Full(config) => format!(
                "full attention, {} heads of width {}, {} key-value heads",
                config.heads,
                config.head_width(width),
                config.key_value_heads()
            ),
        }
    }
}
