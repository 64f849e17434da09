//! The default positions of global attention. Beltagy et al. 2020.

use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::attention::{AttentionConfig, Role};
use crate::checks::refuse;
use crate::{ConfigError, StackConfig};

/// Which positions have global attention by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GlobalsConfig {
    /// The first, which classifiers read.
    First,
    /// All before the first token of this id: the question before a text.
    Before(u32),
}

impl GlobalsConfig {
    /// Whether the settings are valid in `stack`.
    pub(crate) fn validate(self, stack: &StackConfig) -> Result<(), ConfigError> {
        let has_globals =
            |attention: &AttentionConfig| matches!(attention, AttentionConfig::Longformer(_));
        let mut blocks = stack.blocks.iter();
        if stack.role == Role::Causal || !blocks.any(|block| has_globals(&block.attention)) {
            return refuse(
                "globals",
                "no attention of this model supports global positions; leave it out, or use longformer in a bidirectional model",
            );
        }
        match self {
            Self::Before(id) if id as usize >= stack.vocabulary => refuse(
                "globals.before",
                format!(
                    "{id} is not a token of the vocabulary of {}",
                    stack.vocabulary
                ),
            ),
            Self::Before(_) | Self::First => Ok(()),
        }
    }

    /// The global positions of `ids` `[batch, length]`, one list per row.
    pub(crate) fn of(self, ids: &Tensor<2, Int>) -> Vec<Vec<usize>> {
        let [batch, length] = ids.dims();
        match self {
            Self::First => vec![(0..length.min(1)).collect(); batch],
            Self::Before(separator) => {
                let ids = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
                let before = |row: &[i64]| {
                    let end = row.iter().position(|id| *id == i64::from(separator));
                    (0..end.unwrap_or(0)).collect()
                };
                ids.chunks(length.max(1)).map(before).collect()
            }
        }
    }
}
