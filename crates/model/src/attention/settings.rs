//! The interface between a model and the config of any attention. Each kind implements it in its own file.

use super::{Attention, AttentionSpec, HeadsConfig, Role};
use crate::{ConfigError, Flops, Initializer};

/// The cache size of one layer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// This many elements per position.
    Growing(u64),
    /// At most this many elements, whatever the length.
    Fixed(u64),
    /// The layer cannot use a cache: a new position may change what earlier ones attend to.
    Impossible,
}

/// The config of one kind of attention.
pub trait AttentionSettings: CommonSettings {
    /// Whether a layer can be built for `spec`; `path` is the config's path for error messages.
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError>;

    /// Builds the layer. The config must be valid.
    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention;

    /// Flops per token of a layer of this role in a model of this width, at this length; by default those of full attention.
    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        let keys = role.average_keys(length) as u64;
        match self.heads() {
            Some(heads) => heads.flops(width, keys),
            None => Flops {
                weights: 0,
                ..HeadsConfig::new(1).flops(width, keys)
            },
        }
    }

    /// The cache size of the layer; by default that of the keys and values of all positions.
    fn cache(&self, width: usize) -> CacheSize {
        let heads = self.heads().unwrap_or_else(|| HeadsConfig::new(1));
        CacheSize::Growing(heads.key_value_size(width))
    }

    /// A short human-readable description.
    fn describe(&self, width: usize) -> String;
}

/// The part of the interface that `with_heads` implements for kinds with heads.
pub trait CommonSettings {
    /// Its dropout, if it has any.
    fn dropout_mut(&mut self) -> Option<&mut f64>;

    /// Its heads, if it has any.
    fn heads(&self) -> Option<HeadsConfig> {
        None
    }

    /// Makes defaults that depend on the width explicit.
    fn canonicalize(&mut self, width: usize) {
        let _ = width;
    }
}
