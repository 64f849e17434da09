//! Attention: how a position gathers from the others. One struct of settings per kind.

mod multi_head;

pub use multi_head::{FullAttentionConfig, MultiHead};
use serde::{Deserialize, Serialize};

/// Which attention a block has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AttentionConfig {
    /// Every query against every key it may see.
    Full(FullAttentionConfig),
}
