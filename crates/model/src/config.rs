//! The settings of a whole model: one typed tree, shared by the library, recipes and checkpoints.

use serde::{Deserialize, Serialize};

use crate::{
    AttentionConfig, AttentionSpec, BlockConfig, CacheSize, EmbeddingConfig, GlobalsConfig,
    HeadConfig, LearnedConfig, NormConfig, PatchesConfig, PoolerConfig, PositionsConfig,
    RelativePositions, ResidualConfig, Role, SequenceClassifierConfig, TokenClassifierConfig,
    Widths,
};

/// Settings of a transformer: embeddings, blocks, heads and an optional encoder. The defaults are those of a decoder-only
/// language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The vocabulary size; in a recipe, 0 stands for the tokenizer's. A model of images has none.
    #[serde(default)]
    pub vocabulary: usize,
    /// The maximum sequence length.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Whether attention is causal or bidirectional.
    #[serde(default = "causal", skip_serializing_if = "is_causal")]
    pub role: Role,
    /// The patch embedding of a model that reads images in place of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<PatchesConfig>,
    /// The token embedding.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub embedding: EmbeddingConfig,
    /// Dropout on the embeddings.
    #[serde(default)]
    pub embedding_dropout: f64,
    /// Standard deviation of the initial weights.
    #[serde(default = "default_init_std")]
    pub init_std: f64,
    /// The language-model head.
    #[serde(default = "tied")]
    pub head: HeadConfig,
    /// Pooling of the sequence to one vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooler: Option<PoolerConfig>,
    /// The sequence classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<SequenceClassifierConfig>,
    /// The token classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<TokenClassifierConfig>,
    /// Position embeddings.
    pub positions: PositionsConfig,
    /// The default positions of global attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub globals: Option<GlobalsConfig>,
    /// The residual streams; one by default.
    #[serde(default, skip_serializing_if = "is_one")]
    pub residual: ResidualConfig,
    /// The norm after the last block, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_norm: Option<NormConfig>,
    /// The blocks, in order; consecutive equal blocks may share one entry.
    pub blocks: Vec<BlockConfig>,
    /// The block of each layer, by its number, where layers share blocks (Lan et al. 2020). Empty: each block once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<usize>,
    /// The encoder, whose output the blocks' cross attention reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<Box<ModelConfig>>,
}

fn causal() -> Role {
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

fn default_init_std() -> f64 {
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
    /// Multiplications and additions in attention, at the full length.
    pub attention: u64,
}

impl ModelConfig {
    /// A decoder of these sizes with a tied head, learned positions and no blocks yet.
    pub fn new(vocabulary: usize, length: usize, width: usize) -> Self {
        Self {
            vocabulary,
            length,
            width,
            role: Role::Causal,
            patches: None,
            embedding: EmbeddingConfig::default(),
            embedding_dropout: 0.0,
            init_std: default_init_std(),
            head: tied(),
            pooler: None,
            classes: None,
            labels: None,
            positions: PositionsConfig::Learned(LearnedConfig::default()),
            globals: None,
            residual: ResidualConfig::One,
            final_norm: None,
            blocks: Vec::new(),
            order: Vec::new(),
            encoder: None,
        }
    }

    /// The number of layers of a forward pass.
    pub fn layers(&self) -> usize {
        match self.order.len() {
            0 => self.stored_layers(),
            layers => layers,
        }
    }

    /// The number of blocks with weights of their own.
    pub fn stored_layers(&self) -> usize {
        let repeats = self.blocks.iter().map(|block| block.repeat);
        repeats.fold(0, usize::saturating_add)
    }

    /// The settings of each block with weights of its own, repeats written out.
    pub fn stored_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        self.blocks
            .iter()
            .flat_map(|block| std::iter::repeat_n(block, block.repeat))
    }

    /// The settings of each layer's block, shared blocks repeated.
    pub fn unrolled_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        let stored: Vec<&BlockConfig> = self.stored_blocks().collect();
        let order = match self.order.as_slice() {
            [] => (0..stored.len()).collect(),
            order => order.to_vec(),
        };
        order.into_iter().map(move |number| stored[number])
    }

    /// Width of the token and position embeddings.
    pub fn embedding_width(&self) -> usize {
        self.embedding.width.unwrap_or(self.width)
    }

    /// Width of the hidden states that the heads read: all residual streams, concatenated.
    pub fn states_width(&self) -> usize {
        self.width * self.residual.streams()
    }

    /// Query heads of the first block that has heads.
    pub fn heads(&self) -> usize {
        let heads = self.blocks.iter().find_map(|block| block.attention.heads());
        heads.map_or(1, |heads| heads.heads)
    }

    /// Width of one head of the first block that has heads.
    pub fn head_width(&self) -> usize {
        let heads = self.blocks.iter().find_map(|block| block.attention.heads());
        heads.map_or(self.width, |heads| heads.head_width(self.width))
    }

    /// What building an attention of this role takes.
    pub fn attention_spec(&self, role: Role) -> AttentionSpec {
        let std = self.init_std;
        AttentionSpec {
            role,
            widths: Widths::all(self.width),
            length: self.length,
            positions: match self.positions {
                // Positions of two sequences are not comparable.
                _ if role == Role::Cross => RelativePositions::None,
                PositionsConfig::Rotary(_) => RelativePositions::Rotary,
                PositionsConfig::Alibi {} | PositionsConfig::T5Buckets(_) => {
                    RelativePositions::Bias
                }
                _ => RelativePositions::None,
            },
            init_std: std,
            // Each block adds twice to the residual stream; scaling the projections that write into it keeps its variance at
            // one at any depth (Radford et al. 2019).
            residual_std: std / (2.0 * self.stored_layers() as f64).sqrt(),
        }
    }

    /// The canonical form of the settings: defaults written out, consecutive equal blocks merged.
    pub fn canonical(&self) -> Self {
        let mut config = self.clone();
        config.head = self.head.canonical();
        config.embedding.scaled = self.embedding.scale(self).map(|_| true);
        config.pooler = (self.pooler.as_ref()).map(|pooler| pooler.canonical(self.width));
        config.encoder = (self.encoder.as_ref()).map(|it| Box::new(it.canonical()));
        if self.order.iter().copied().eq(0..self.stored_layers()) {
            config.order.clear();
        }
        config.blocks.clear();
        for block in &self.blocks {
            let mut block = block.clone();
            block.attention = block.attention.canonical(self.width);
            block.cross = (block.cross.as_ref()).map(|cross| cross.canonical(self.width));
            block.feed_forward = block.feed_forward.canonical();
            match config.blocks.last_mut() {
                Some(last) if equal_except_repeat(last, &block) => last.repeat += block.repeat,
                _ => config.blocks.push(block),
            }
        }
        config
    }

    /// The settings without dropout, which inference does not depend on.
    pub fn without_dropout(&self) -> Self {
        let mut config = self.clone();
        config.embedding_dropout = 0.0;
        for block in &mut config.blocks {
            block.dropout = 0.0;
            block.attention = block.attention.without_dropout();
            block.cross = (block.cross.as_ref()).map(AttentionConfig::without_dropout);
        }
        if let Some(classes) = &mut config.classes {
            classes.dropout = 0.0;
        }
        if let Some(labels) = &mut config.labels {
            labels.dropout = 0.0;
        }
        config.encoder = (self.encoder.as_ref()).map(|it| Box::new(it.without_dropout()));
        config
    }

    /// Flops of one forward pass, per token, without those of the encoder, which reads other tokens.
    pub fn flops(&self) -> Flops {
        let width = self.width as u64;
        let mut total = Flops {
            weights: match self.head {
                HeadConfig::None => 0,
                _ => 2 * self.states_width() as u64 * self.vocabulary as u64,
            },
            attention: 0,
        };
        for block in self.unrolled_blocks() {
            let feed_forward = block.feed_forward.flops(width);
            // Settings that are too large to build are allowed here; their sums saturate.
            total.weights = total.weights.saturating_add(feed_forward);
            let attentions = [Some(&block.attention), block.cross.as_ref()];
            for attention in attentions.into_iter().flatten() {
                let attention = attention.flops(self.width, self.length);
                total.weights = total.weights.saturating_add(attention.weights);
                total.attention = total.attention.saturating_add(attention.attention);
            }
        }
        total
    }

    /// Whether all layers support a KV cache; otherwise each new token takes a pass over the whole sequence.
    pub fn cacheable(&self) -> bool {
        let mut blocks = self.blocks.iter();
        self.role == Role::Causal
            && blocks.all(|block| block.attention.cache(self.width) != CacheSize::Impossible)
    }

    /// Values that each position adds to the KV cache.
    pub fn cache_values_per_token(&self) -> u64 {
        self.cached(|size| match size {
            CacheSize::Growing(values) => values,
            CacheSize::Fixed(_) | CacheSize::Impossible => 0,
        })
    }

    /// Values in the KV cache of the layers whose size does not grow, at most.
    pub fn fixed_cache_values(&self) -> u64 {
        self.cached(|size| match size {
            CacheSize::Fixed(values) => values,
            CacheSize::Growing(_) | CacheSize::Impossible => 0,
        })
    }

    fn cached(&self, values: impl Fn(CacheSize) -> u64) -> u64 {
        let layers = self.unrolled_blocks();
        let values = layers.map(|block| values(block.attention.cache(self.width)));
        values.fold(0, u64::saturating_add)
    }
}

fn equal_except_repeat(one: &BlockConfig, other: &BlockConfig) -> bool {
    let other = BlockConfig {
        repeat: one.repeat,
        ..other.clone()
    };
    *one == other
}
