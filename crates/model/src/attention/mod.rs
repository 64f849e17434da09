//! Attention: how a position gathers from others. One file per kind.
//!
//! Three seams, each inside the one before:
//!
//! ```text
//! mechanism   owns its projections: sequences in, a sequence out           Attention, and MultiHead among its kinds
//! pattern     works on heads: who meets whom, and how                      Pattern, inside MultiHead or Unprojected
//! kernel      the same mathematics, faster                                 in the operations of `tensor`, unseen here
//! ```

mod additive;
mod argmax;
mod big_bird;
mod chunks;
mod cosine;
mod full;
mod heads;
mod linear;
mod linformer;
mod longformer;
mod multi_head;
mod nadaraya_watson;
mod pattern;
mod performer;
mod place;
mod reformer;
mod scored;
mod settings;
mod sight;
mod sliding_window;
mod transformer_xl;
mod unprojected;

use std::ops::Range;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub(crate) use additive::Additive;
pub use argmax::{Argmax, ArgmaxConfig};
pub use big_bird::{BigBird, BigBirdConfig, BlockDraws};
pub use chunks::{Chunks, ChunksConfig};
pub use cosine::{Cosine, CosineConfig};
pub use full::FullAttentionConfig;
pub use heads::HeadsConfig;
pub use linear::{LinearAttentionConfig, LinearPattern};
pub use linformer::{Linformer, LinformerConfig, LinformerSharing};
pub use longformer::{Longformer, LongformerConfig};
pub use multi_head::MultiHead;
pub use nadaraya_watson::{
    KernelShape, LearnWidth, NadarayaWatson, NadarayaWatsonConfig, OwnPosition,
};
pub use pattern::{Call, Context, Pattern, Projected};
pub use performer::{Performer, PerformerConfig};
pub use place::{Place, RelativePositions, Role, Widths};
pub use reformer::order::FillConfig;
pub use reformer::{Reformer, ReformerConfig, RotationGenerator};
pub use scored::{ScoreConfig, Scored, ScoredConfig};
pub use settings::{AttentionSettings, CacheSize, CommonSettings};
pub use sliding_window::SlidingWindowConfig;
pub use transformer_xl::{MemoryStart, TransformerXl, TransformerXlConfig};
pub use unprojected::Unprojected;

use crate::checks::refuse;
use crate::{ConfigError, Initializer, Operations, Pass};

/// Makes the enum of all settings, and the one way from it to a kind's answers.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident($config:ty),)*) => {
        /// Which attention a block has.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum AttentionConfig {
            $($(#[$about])* $kind($config),)*
        }

        impl AttentionConfig {
            /// The settings of its kind.
            pub fn settings(&self) -> &dyn AttentionSettings {
                match self {
                    $(Self::$kind(settings) => settings,)*
                }
            }

            fn settings_mut(&mut self) -> &mut dyn AttentionSettings {
                match self {
                    $(Self::$kind(settings) => settings,)*
                }
            }
        }
    };
}

kinds! {
    /// Every query against every key it may see.
    Full(FullAttentionConfig),
    /// Every query against the keys near it.
    SlidingWindow(SlidingWindowConfig),
    /// A score of one's choice, with heads or of sequences as they are.
    Scored(ScoredConfig),
    /// Queries and keys by their angle.
    Cosine(CosineConfig),
    /// Every query takes the value of its best key.
    Argmax(ArgmaxConfig),
    /// Sums of products of positive features.
    Linear(LinearAttentionConfig),
    /// The same with random features, which estimate the softmax.
    Performer(PerformerConfig),
    /// Every query against a few slots that all positions are mapped to.
    Linformer(LinformerConfig),
    /// Weights that fall with the distance of queries and keys.
    NadarayaWatson(NadarayaWatsonConfig),
    /// A segment and a memory of earlier ones, by content and distance.
    TransformerXl(TransformerXlConfig),
    /// A window, and positions that see all.
    Longformer(LongformerConfig),
    /// Blocks: those near, the ends and a few drawn ones.
    BigBird(BigBirdConfig),
    /// Vectors that hash alike.
    Reformer(ReformerConfig),
    /// Chunks of a sequence and those beside them.
    Chunks(ChunksConfig),
}

impl AttentionConfig {
    /// Whether the settings can work in this place; `path` is where they stand.
    pub fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        if place.role == Role::Cross && place.positions != RelativePositions::None {
            return refuse(
                &format!("{path}.kind"),
                "positions reach only into attention of a sequence to itself, and this is to another; build it without",
            );
        }
        self.settings().validate(path, place)
    }

    /// Its heads, where it has some.
    pub fn heads(&self) -> Option<HeadsConfig> {
        self.settings().heads()
    }

    /// The same settings with implied sizes written out.
    #[must_use]
    pub fn canonical(&self, width: usize) -> Self {
        let mut config = self.clone();
        config.settings_mut().write_out(width);
        config
    }

    /// The same settings without dropout.
    #[must_use]
    pub fn without_dropout(&self) -> Self {
        let mut config = self.clone();
        if let Some(dropout) = config.settings_mut().dropout_mut() {
            *dropout = 0.0;
        }
        config
    }

    /// Operations per token in a model of this width, at this length.
    pub fn operations(&self, width: usize, length: usize) -> Operations {
        self.settings().operations(width, length)
    }

    /// What a cache holds for a layer of these settings.
    pub fn cache(&self, width: usize) -> CacheSize {
        self.settings().cache(width)
    }

    /// A few words for a person.
    pub fn describe(&self, width: usize) -> String {
        self.settings().describe(width)
    }
}

/// A sequence that is looked at, other than the one that asks.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What is compared with, `[batch, keys, width]`.
    pub keys: Tensor<3>,
    /// What is gathered, `[batch, keys, width]`.
    pub values: Tensor<3>,
    /// Where padding leaves real positions, one range per batch row.
    pub real: Option<Vec<Range<usize>>>,
}

impl Memory {
    /// One sequence for both, without padding.
    pub fn new(x: Tensor<3>) -> Self {
        Self {
            keys: x.clone(),
            values: x,
            real: None,
        }
    }
}

/// What an attention reads.
#[derive(Clone, Debug)]
pub struct AttentionInput {
    /// What asks, `[batch, queries, width]`.
    pub queries: Tensor<3>,
    /// What is looked at; a layer whose role is not [`Role::Cross`] looks at the queries themselves.
    pub memory: Option<Memory>,
    /// The layer's number, for cache and observer.
    pub layer: usize,
}

impl AttentionInput {
    /// A sequence that looks at itself.
    pub fn own(queries: Tensor<3>, layer: usize) -> Self {
        Self {
            queries,
            memory: None,
            layer,
        }
    }
}

/// Both sides of an attention, whichever sequence is looked at.
pub(super) struct Sides {
    pub queries: Tensor<3>,
    pub keys: Tensor<3>,
    pub values: Tensor<3>,
    pub real: Option<Vec<Range<usize>>>,
}

impl AttentionInput {
    /// Queries, keys and values before any projection.
    ///
    /// # Panics
    /// When the role is [`Role::Cross`] and there is no memory, or the reverse.
    fn sides(&self, role: Role, pass: &Pass) -> Sides {
        let queries = self.queries.clone();
        match (role, &self.memory) {
            (Role::Cross, Some(memory)) => Sides {
                queries,
                keys: memory.keys.clone(),
                values: memory.values.clone(),
                real: memory.real.clone(),
            },
            (Role::Bidirectional | Role::Causal, None) => Sides {
                keys: queries.clone(),
                values: queries.clone(),
                queries,
                real: pass.real.clone(),
            },
            (Role::Cross, None) => panic!("attention: cross-attention has no memory"),
            (_, Some(_)) => panic!("attention: {role:?} attention has a memory"),
        }
    }
}

/// What an attention gives.
#[derive(Clone, Debug)]
pub struct AttentionOutput {
    /// `[batch, queries, width]`
    pub output: Tensor<3>,
    /// `[batch, heads, queries, keys]`, if the observer asked for them and the kind has them.
    pub weights: Option<Tensor<4>>,
}

/// An attention of any kind.
#[derive(Module, Debug)]
pub enum Attention {
    /// Projects to heads, which a pattern lets meet.
    MultiHead(MultiHead),
    /// Lets sequences meet as they are.
    Unprojected(Unprojected),
    /// A segment and a memory of earlier ones.
    TransformerXl(TransformerXl),
    /// A window, and positions that see all.
    Longformer(Longformer),
    /// Vectors that hash alike.
    Reformer(Reformer),
}

impl Attention {
    /// Builds a layer, or says why it cannot be.
    pub fn new(
        config: &AttentionConfig,
        place: &Place,
        initial: &mut Initializer,
    ) -> Result<Self, ConfigError> {
        config.validate("attention", place)?;
        Ok(config.settings().build(place, initial))
    }

    /// What it is used for.
    pub fn role(&self) -> Role {
        match self {
            Self::MultiHead(attention) => attention.role,
            Self::Unprojected(attention) => attention.role,
            Self::Longformer(attention) => attention.role,
            Self::Reformer(attention) => attention.role,
            Self::TransformerXl(_) => Role::Causal,
        }
    }

    /// Draws anew what is drawn anew at this step.
    #[must_use]
    pub fn redraw(self, step: u64) -> Self {
        match self {
            Self::MultiHead(attention) => Self::MultiHead(attention.redraw(step)),
            other => other,
        }
    }

    /// Lets the queries gather.
    ///
    /// # Panics
    /// When the role is [`Role::Cross`] and there is no memory, or the reverse; when it is [`Role::Bidirectional`] and there
    /// is a cache; or when shapes do not fit.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        assert!(
            self.role() != Role::Bidirectional || pass.cache.is_none(),
            "attention: a bidirectional layer sees later positions, so no cache can serve it; give the whole sequence"
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
