//! The settings of a stack and of a whole model: one typed tree, shared by the library, recipes and checkpoints.

use serde::{Deserialize, Serialize};

use crate::attention::Role;
use crate::block::{BlockConfig, ResidualConfig};
use crate::embeddings::{EmbeddingConfig, PatchesConfig};
use crate::head::{HeadConfig, PoolerConfig, SequenceClassifierConfig, TokenClassifierConfig};
use crate::positions::PositionsConfig;
use crate::setters;
use crate::{GlobalsConfig, NormConfig};

/// Settings of a transformer: a stack, its heads and an optional encoder. The defaults are those of a decoder-only language
/// model. In files, the stack's settings are flattened into the same table as the heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "ModelKeys", into = "ModelKeys")]
pub struct ModelConfig {
    /// Embeddings and blocks.
    pub stack: StackConfig,
    /// The language-model head.
    pub head: HeadConfig,
    /// Pooling of the sequence to one vector.
    pub pooler: Option<PoolerConfig>,
    /// The sequence classifier.
    pub sequence_classifier: Option<SequenceClassifierConfig>,
    /// The token classifier.
    pub token_classifier: Option<TokenClassifierConfig>,
    /// The encoder, whose output the blocks' cross-attention reads.
    pub encoder: Option<Box<StackConfig>>,
}

/// Declares [`StackConfig`], and [`ModelKeys`], which has the same keys and those of the heads. (serde's `flatten` would lose
/// the path of a key in errors.)
macro_rules! stack_keys {
    ($($(#[$attribute:meta])* $field:ident: $type:ty,)*) => {
        /// Settings of a stack: embeddings, blocks and the norm after them. An encoder has no others.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct StackConfig {
            $($(#[$attribute])* pub $field: $type,)*
        }

        /// The serialized form of a [`ModelConfig`].
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ModelKeys {
            $($(#[$attribute])* $field: $type,)*
            #[serde(default = "tied")]
            head: HeadConfig,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pooler: Option<PoolerConfig>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            sequence_classifier: Option<SequenceClassifierConfig>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            token_classifier: Option<TokenClassifierConfig>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            encoder: Option<Box<StackConfig>>,
        }

        impl From<ModelKeys> for ModelConfig {
            fn from(keys: ModelKeys) -> Self {
                Self {
                    stack: StackConfig { $($field: keys.$field,)* },
                    head: keys.head,
                    pooler: keys.pooler,
                    sequence_classifier: keys.sequence_classifier,
                    token_classifier: keys.token_classifier,
                    encoder: keys.encoder,
                }
            }
        }

        impl From<ModelConfig> for ModelKeys {
            fn from(config: ModelConfig) -> Self {
                Self {
                    $($field: config.stack.$field,)*
                    head: config.head,
                    pooler: config.pooler,
                    sequence_classifier: config.sequence_classifier,
                    token_classifier: config.token_classifier,
                    encoder: config.encoder,
                }
            }
        }
    };
}

stack_keys! {
    /// The vocabulary size; in a recipe, 0 stands for the tokenizer's. A stack that reads images has none.
    #[serde(default)]
    vocabulary: usize,
    /// The maximum sequence length.
    length: usize,
    /// Width of the residual stream.
    width: usize,
    /// Whether attention is causal or bidirectional.
    #[serde(default = "causal", skip_serializing_if = "is_causal")]
    role: Role,
    /// The patch embedding of a stack that reads images in place of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patches: Option<PatchesConfig>,
    /// The token embedding.
    #[serde(default, skip_serializing_if = "is_plain")]
    embedding: EmbeddingConfig,
    /// Dropout on the embeddings.
    #[serde(default)]
    embedding_dropout: f64,
    /// Standard deviation of the initial weights.
    #[serde(default = "default_init_std")]
    init_std: f64,
    /// Position embeddings.
    positions: PositionsConfig,
    /// The default positions of global attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    globals: Option<GlobalsConfig>,
    /// The residual streams; one by default.
    #[serde(default, skip_serializing_if = "is_one")]
    residual: ResidualConfig,
    /// The norm after the last block, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    final_norm: Option<NormConfig>,
    /// The blocks, in order; consecutive equal blocks may share one entry.
    blocks: Vec<BlockConfig>,
    /// The block of each layer, by its number, where layers share blocks (Lan et al. 2020). Empty: each block once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    order: Vec<usize>,
}

/// Declares the setters of a stack, and the same on the model that it is part of.
macro_rules! stack_setters {
    ($($name:ident($field:ident: $type:ty $(=> $convert:path)?);)*) => {
        impl StackConfig {
            setters! {
                $($name($field: $type $(=> $convert)?);)*
            }
        }

        impl ModelConfig {
            $(
                #[doc = concat!("Sets [`StackConfig::", stringify!($field), "`].")]
                #[must_use]
                pub fn $name(mut self, $field: $type) -> Self {
                    self.stack = self.stack.$name($field);
                    self
                }
            )*
        }
    };
}

stack_setters! {
    with_vocabulary(vocabulary: usize);
    with_length(length: usize);
    with_role(role: Role);
    with_embedding(embedding: EmbeddingConfig);
    with_embedding_dropout(embedding_dropout: f64);
    with_init_std(init_std: f64);
    with_positions(positions: impl Into<PositionsConfig> => Into::into);
    with_globals(globals: GlobalsConfig => Some);
    with_residual(residual: ResidualConfig);
    with_final_norm(final_norm: NormConfig => Some);
    with_order(order: impl Into<Vec<usize>> => Into::into);
}

pub(crate) fn causal() -> Role {
    Role::Causal
}

fn is_causal(role: &Role) -> bool {
    *role == Role::Causal
}

fn is_plain(embedding: &EmbeddingConfig) -> bool {
    *embedding == EmbeddingConfig::default()
}

fn is_one(residual: &ResidualConfig) -> bool {
    *residual == ResidualConfig::One
}

pub(crate) fn default_init_std() -> f64 {
    0.02
}

fn tied() -> HeadConfig {
    HeadConfig::Tied
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The setting, as a path from the root of the model's settings.
    pub field: String,
    /// What is wrong with its value, and which values are allowed.
    pub problem: String,
}

/// Floating-point operations of one forward pass, per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flops {
    /// Multiplications and additions in products with weights.
    pub weights: u64,
    /// Multiplications and additions in attention, at the full length, of which a causal query attends to half on average.
    pub attention: u64,
}

impl ModelConfig {
    /// A stack without heads.
    pub fn new(stack: StackConfig) -> Self {
        Self {
            stack,
            head: HeadConfig::None,
            pooler: None,
            sequence_classifier: None,
            token_classifier: None,
            encoder: None,
        }
    }

    /// A causal language model of these sizes: learned positions and a tied head, without blocks yet.
    pub fn decoder(vocabulary: usize, length: usize, width: usize) -> Self {
        Self::new(StackConfig::new(vocabulary, length, width)).with_head(tied())
    }

    /// A bidirectional model of these sizes: learned positions, without blocks or heads yet.
    pub fn encoder(vocabulary: usize, length: usize, width: usize) -> Self {
        let stack = StackConfig::new(vocabulary, length, width);
        Self::new(stack.with_role(Role::Bidirectional))
    }

    /// A bidirectional model that reads images: learned positions, without blocks or heads yet.
    pub fn image_encoder(patches: PatchesConfig, width: usize) -> Self {
        Self::new(StackConfig {
            role: Role::Bidirectional,
            patches: Some(patches),
            ..StackConfig::new(0, patches.positions(), width)
        })
    }

    /// A causal language model with a tied head, whose blocks read the encoder by cross-attention.
    pub fn encoder_decoder(encoder: StackConfig, decoder: StackConfig) -> Self {
        Self::new(decoder).with_head(tied()).with_encoder(encoder)
    }

    /// Adds `count` of these blocks after those of the stack.
    #[must_use]
    pub fn blocks(mut self, count: usize, block: BlockConfig) -> Self {
        self.stack = self.stack.blocks(count, block);
        self
    }

    /// Sets [`encoder`](#structfield.encoder).
    #[must_use]
    pub fn with_encoder(mut self, encoder: StackConfig) -> Self {
        self.encoder = Some(Box::new(encoder));
        self
    }

    setters! {
        with_head(head: impl Into<HeadConfig> => Into::into);
        with_pooler(pooler: PoolerConfig => Some);
        with_sequence_classifier(sequence_classifier: SequenceClassifierConfig => Some);
        with_token_classifier(token_classifier: TokenClassifierConfig => Some);
    }

    /// The canonical form of the settings: defaults written out, consecutive equal blocks merged.
    pub fn canonical(&self) -> Self {
        Self {
            stack: self.stack.canonical(),
            head: self.head.canonical(),
            pooler: (self.pooler.as_ref()).map(|pooler| pooler.canonical(self.stack.width)),
            sequence_classifier: self.sequence_classifier.clone(),
            token_classifier: self.token_classifier.clone(),
            encoder: (self.encoder.as_ref()).map(|encoder| Box::new(encoder.canonical())),
        }
    }

    /// The settings without dropout, which inference does not depend on.
    pub fn without_dropout(&self) -> Self {
        let mut config = self.clone();
        config.stack = self.stack.without_dropout();
        if let Some(classifier) = &mut config.sequence_classifier {
            classifier.dropout = 0.0;
        }
        if let Some(classifier) = &mut config.token_classifier {
            classifier.dropout = 0.0;
            if let Some(layer) = &mut classifier.layer {
                layer.dropout = 0.0;
            }
        }
        config.encoder = (self.encoder.as_ref()).map(|it| Box::new(it.without_dropout()));
        config
    }

    /// Flops of one forward pass, per token, without those of the encoder, which reads other tokens.
    pub fn flops(&self) -> Flops {
        let mut flops = self.stack.flops();
        let head = self.head.flops(&self.stack);
        flops.weights = flops.weights.saturating_add(head);
        flops
    }
}
