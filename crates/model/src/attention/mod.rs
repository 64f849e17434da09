//! Attention, one file per kind.
//!
//! Three layers of abstraction, each inside the one before:
//!
//! ```text
//! mechanism   owns its projections: sequences in, a sequence out            Attention, e.g. MultiHead
//! pattern     works on projected heads: which pairs attend, and how         Pattern, inside MultiHead or Unprojected
//! kernel      an optimized implementation of the same mathematics           in the operations of `tensor`, invisible here
//! ```

mod additive;
mod argmax;
mod big_bird;
mod chunks;
mod cosine;
mod custom;
mod full;
mod heads;
mod linear;
mod linformer;
mod longformer;
mod multi_head;
mod nadaraya_watson;
mod pairwise_bias;
mod pattern;
mod performer;
mod reformer;
mod scored;
mod settings;
mod sliding_window;
mod spec;
mod transformer_xl;
mod unprojected;

use std::ops::Range;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub use additive::Additive;
pub use argmax::{Argmax, ArgmaxConfig};
pub use big_bird::{BigBird, BigBirdConfig, BlockSampling};
pub use chunks::{Chunks, ChunksConfig};
pub use cosine::{Cosine, CosineConfig};
pub use custom::{
    Custom, CustomConfig, CustomPattern, CustomSettings, Pair, PairScores, PatternCache,
    PatternInput, PatternParameter, PatternParameters, PatternSpec, RegisterError, ScoreModifier,
    register, registered,
};
pub use full::FullAttentionConfig;
pub use heads::HeadsConfig;
pub use linear::{LinearAttentionConfig, LinearPattern};
pub use linformer::{Linformer, LinformerConfig, LinformerSharing};
pub use longformer::{Longformer, LongformerConfig};
pub use multi_head::MultiHead;
pub use nadaraya_watson::{
    KernelShape, LearnWidth, NadarayaWatson, NadarayaWatsonConfig, QueryPosition,
};
pub use pattern::{AttendContext, Pattern, PatternOutput, Qkv};
pub use performer::{Performer, PerformerConfig};
pub use reformer::chunk_order::PaddingConfig;
pub use reformer::{Reformer, ReformerConfig, RotationGenerator};
pub use scored::{ScoreConfig, Scored, ScoredConfig};
pub use settings::{AttentionSettings, CacheSize, CommonSettings};
pub use sliding_window::SlidingWindowConfig;
pub use spec::{AttentionSpec, RelativePositions, Role, Widths};
pub use transformer_xl::{MemoryStart, TransformerXl, TransformerXlConfig};
pub use unprojected::Unprojected;

use crate::builders::from_kinds;
use crate::checks::refuse;
use crate::indices::indices;
use crate::{ConfigError, Flops, ForwardContext, Initializer};

/// Declares the enum of all configs and its dispatch to [`AttentionSettings`].
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident($config:ty),)*) => {
        /// The attention of a block.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum AttentionConfig {
            $($(#[$about])* $kind($config),)*
            /// A kind that the program registered.
            #[serde(untagged)]
            Custom(CustomConfig),
        }

        /// The kinds of this crate, which serde reads from their names; `custom` looks up the others.
        #[derive(Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        enum BuiltIn {
            $($kind($config),)*
        }

        const BUILT_IN: &[&str] = &[$(stringify!($kind)),*];

        impl From<BuiltIn> for AttentionConfig {
            fn from(config: BuiltIn) -> Self {
                match config {
                    $(BuiltIn::$kind(settings) => Self::$kind(settings),)*
                }
            }
        }

        impl AttentionConfig {
            /// The config of the kind.
            pub fn settings(&self) -> &dyn AttentionSettings {
                match self {
                    $(Self::$kind(settings) => settings,)*
                    Self::Custom(settings) => settings,
                }
            }

            fn settings_mut(&mut self) -> &mut dyn AttentionSettings {
                match self {
                    $(Self::$kind(settings) => settings,)*
                    Self::Custom(settings) => settings,
                }
            }
        }

        from_kinds!(AttentionConfig: $($kind($config)),*);
    };
}

kinds! {
    /// Softmax attention over all keys.
    Full(FullAttentionConfig),
    /// Softmax attention over the keys near the query.
    SlidingWindow(SlidingWindowConfig),
    /// Softmax attention with a choice of score functions, with or without projections to heads.
    Scored(ScoredConfig),
    /// Softmax of cosine similarities.
    Cosine(CosineConfig),
    /// Hard attention: every query takes the value of its best key.
    Argmax(ArgmaxConfig),
    /// Linear attention with a positive feature map.
    Linear(LinearAttentionConfig),
    /// Linear attention with random features that estimate the softmax.
    Performer(PerformerConfig),
    /// Softmax attention over keys and values projected along the length.
    Linformer(LinformerConfig),
    /// Kernel regression: weights decrease with the distance of query and key.
    NadarayaWatson(NadarayaWatsonConfig),
    /// A segment and a memory of earlier ones, with relative positions.
    TransformerXl(TransformerXlConfig),
    /// A sliding window and global positions.
    Longformer(LongformerConfig),
    /// Block-sparse: neighbouring, first, last and random blocks.
    BigBird(BigBirdConfig),
    /// Locality-sensitive hashing.
    Reformer(ReformerConfig),
    /// A chunk and its neighbours.
    Chunks(ChunksConfig),
}

impl AttentionConfig {
    /// Whether a layer can be built for `spec`; `path` is the config's path for error messages.
    pub fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        if spec.role == Role::Cross && spec.positions != RelativePositions::None {
            return refuse(
                &format!("{path}.kind"),
                "rotary positions and relative position biases need self-attention, and this is cross-attention; build it without",
            );
        }
        self.settings().validate(path, spec)
    }

    /// Its heads, if the kind has heads.
    pub fn heads(&self) -> Option<HeadsConfig> {
        self.settings().heads()
    }

    /// The same config with defaults that depend on the width made explicit.
    #[must_use]
    pub fn canonical(&self, width: usize) -> Self {
        let mut config = self.clone();
        config.settings_mut().canonicalize(width);
        config
    }

    /// The same config without dropout.
    #[must_use]
    pub fn without_dropout(&self) -> Self {
        let mut config = self.clone();
        if let Some(dropout) = config.settings_mut().dropout_mut() {
            *dropout = 0.0;
        }
        config
    }

    /// Flops per token of a layer of this role in a model of this width, at this length.
    pub fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        self.settings().flops(width, length, role)
    }

    /// The cache size of such a layer.
    pub fn cache(&self, width: usize) -> CacheSize {
        self.settings().cache(width)
    }

    /// A short human-readable description.
    pub fn describe(&self, width: usize) -> String {
        self.settings().describe(width)
    }
}

/// The keys and values to attend to, before any projection.
#[derive(Clone, Debug)]
pub struct Memory {
    /// `[batch, keys, width]`
    pub keys: Tensor<3>,
    /// `[batch, keys, width]`
    pub values: Tensor<3>,
    /// The positions that are not padding, one range per batch row.
    pub non_padding: Option<Vec<Range<usize>>>,
}

impl Memory {
    /// The same sequence as keys and values, without padding.
    pub fn new(x: Tensor<3>) -> Self {
        Self {
            keys: x.clone(),
            values: x,
            non_padding: None,
        }
    }

    /// The memory whose batch row `i` is row `rows[i]` of this one.
    #[must_use]
    pub fn select(self, rows: &[usize]) -> Self {
        let selected = indices(rows.iter().copied(), &self.keys.device());
        Self {
            keys: self.keys.select(0, selected.clone()),
            values: self.values.select(0, selected),
            non_padding: (self.non_padding)
                .map(|ranges| rows.iter().map(|row| ranges[*row].clone()).collect()),
        }
    }
}

/// The input of an attention layer.
#[derive(Clone, Debug)]
pub struct AttentionInput {
    /// `[batch, queries, width]`
    pub queries: Tensor<3>,
    /// The sequence attended to if the role is [`Role::Cross`]; self-attention has none.
    pub memory: Option<Memory>,
    /// The index of the layer, for cache and observer.
    pub layer: usize,
}

impl AttentionInput {
    /// The input of self-attention.
    pub fn self_attention(x: Tensor<3>, layer: usize) -> Self {
        Self {
            queries: x,
            memory: None,
            layer,
        }
    }

    /// The queries, and what they attend to: the memory, or the queries themselves.
    ///
    /// # Panics
    /// When the role is [`Role::Cross`] and there is no memory, or the reverse.
    fn queries_and_memory(self, role: Role, pass: &ForwardContext) -> (Tensor<3>, Memory) {
        let queries = self.queries;
        let memory = match (role, self.memory) {
            (Role::Cross, Some(memory)) => memory,
            (Role::Bidirectional | Role::Causal, None) => Memory {
                non_padding: pass.non_padding.clone(),
                ..Memory::new(queries.clone())
            },
            (Role::Cross, None) => panic!("attention: cross-attention has no memory"),
            (_, Some(_)) => panic!("attention: {role:?} attention has a memory"),
        };
        (queries, memory)
    }
}

/// An attention layer of any kind.
#[derive(Module, Debug)]
pub enum Attention {
    /// Projections to heads and back around a pattern.
    MultiHead(MultiHead),
    /// A pattern without projections.
    Unprojected(Unprojected),
    /// A segment and a memory of earlier ones.
    TransformerXl(TransformerXl),
    /// A sliding window and global positions.
    Longformer(Longformer),
    /// Locality-sensitive hashing.
    Reformer(Reformer),
}

impl Attention {
    /// Builds a layer, or explains why it cannot be built.
    pub fn new(
        config: &AttentionConfig,
        spec: &AttentionSpec,
        initializer: &mut Initializer,
    ) -> Result<Self, ConfigError> {
        config.validate("attention", spec)?;
        Ok(config.settings().build(spec, initializer))
    }

    /// What the layer attends to.
    pub fn role(&self) -> Role {
        match self {
            Self::MultiHead(attention) => attention.role,
            Self::Unprojected(attention) => attention.role,
            Self::Longformer(attention) => attention.role,
            Self::Reformer(attention) => attention.role,
            Self::TransformerXl(_) => Role::Causal,
        }
    }

    /// Resamples random features when due.
    #[must_use]
    pub fn resample_features(self, step: u64) -> Self {
        match self {
            Self::MultiHead(attention) => Self::MultiHead(attention.resample_features(step)),
            other => other,
        }
    }

    /// The attention output of each query, `[batch, queries, width]`.
    ///
    /// # Panics
    /// When the role is [`Role::Cross`] and there is no memory, or the reverse; when it is [`Role::Bidirectional`] and there
    /// is a cache; or when shapes do not match.
    pub fn forward(&self, input: AttentionInput, pass: &mut ForwardContext) -> Tensor<3> {
        assert!(
            self.role() != Role::Bidirectional || pass.cache.is_none(),
            "attention: a bidirectional layer attends to later positions and cannot use a cache; give the whole sequence"
        );
        match self {
            Self::MultiHead(attention) => attention.forward(input, pass),
            Self::Unprojected(attention) => attention.forward(input, pass),
            Self::TransformerXl(attention) => attention.forward(input, pass),
            Self::Longformer(attention) => attention.forward(input, pass),
            Self::Reformer(attention) => attention.forward(input, pass),
        }
    }
}
