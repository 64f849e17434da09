//! What a model asks of the settings of any attention. Each kind answers in its own file.

use super::{Attention, HeadsConfig, Place};
use crate::{ConfigError, Initializer, Operations};

/// How much a cache holds for one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// So many numbers more for each position.
    Growing(u64),
    /// At most so many numbers, however long the sequence.
    Fixed(u64),
    /// No cache can serve: each new position may change what earlier ones gather.
    Impossible,
}

/// The settings of one kind of attention.
pub trait AttentionSettings: CommonSettings {
    /// Whether they can work in this place; `path` is where they stand.
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError>;

    /// The layer, of settings that were found valid.
    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention;

    /// Operations per token in a model of this width, at this length, of a causal layer.
    fn operations(&self, width: usize, length: usize) -> Operations;

    /// What a cache holds for it.
    fn cache(&self, width: usize) -> CacheSize;

    /// A few words for a person.
    fn describe(&self, width: usize) -> String;
}

/// What kinds have in common; `with_heads` answers for those with heads.
pub trait CommonSettings {
    /// Its dropout, where it has one.
    fn dropout_mut(&mut self) -> Option<&mut f64>;

    /// Its heads, where it has some.
    fn heads(&self) -> Option<HeadsConfig> {
        None
    }

    /// Writes implied sizes out.
    fn write_out(&mut self, width: usize) {
        let _ = width;
    }
}
