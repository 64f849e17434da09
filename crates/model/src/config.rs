//! The settings of a whole model: one typed tree, shared by the library, recipes and checkpoints.

use serde::{Deserialize, Serialize};

use crate::{
    AttentionConfig, BlockConfig, CacheSize, ClassesConfig, EmbeddingConfig, GlobalsConfig,
    HeadConfig, LabelsConfig, LearnedConfig, NormConfig, PatchesConfig, Place, PoolerConfig,
    PositionsConfig, RelativePositions, ResidualConfig, Role, Widths,
};

/// Settings of a transformer: a stack of blocks, what it reads, what reads it, and the encoder that it may look at. What is
/// left out is what a decoder-only language model has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// How many tokens there are; in a recipe, zero stands for as many as the tokenizer has. A model that reads pictures has
    /// none.
    #[serde(default)]
    pub vocabulary: usize,
    /// The longest sequence.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Whether positions see all others, or those before them only.
    #[serde(default = "causal", skip_serializing_if = "is_causal")]
    pub role: Role,
    /// How pictures are read, in place of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<PatchesConfig>,
    /// What becomes of tokens before the first block.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub embedding: EmbeddingConfig,
    /// Dropout on the embeddings.
    #[serde(default)]
    pub embedding_dropout: f64,
    /// Spread of the initial weights.
    #[serde(default = "default_deviation")]
    pub initial_deviation: f64,
    /// Scores of the vocabulary, and where their weights come from.
    #[serde(default = "tied")]
    pub head: HeadConfig,
    /// A vector for the whole sequence, if wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooler: Option<PoolerConfig>,
    /// Classes of the whole sequence, if wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassesConfig>,
    /// Labels of each position, if wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelsConfig>,
    /// How the model knows the order of its tokens.
    pub positions: PositionsConfig,
    /// Which positions are global in a pass that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub globals: Option<GlobalsConfig>,
    /// The residual streams; one unless said.
    #[serde(default, skip_serializing_if = "is_one")]
    pub residual: ResidualConfig,
    /// The norm after the last block, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_norm: Option<NormConfig>,
    /// The blocks, in order; equal neighbours may share one entry.
    pub blocks: Vec<BlockConfig>,
    /// Which blocks a pass goes through, by their numbers, where some are gone through more than once (Lan et al. 2020).
    /// Empty: each once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<usize>,
    /// What reads the sequence that the blocks' cross attention looks at.
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

fn default_deviation() -> f64 {
    0.02
}

fn tied() -> HeadConfig {
    HeadConfig::Tied
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The setting, as a path from the root of the model's settings.
    pub field: String,
    /// What is wrong with its value, and which values are allowed.
    pub problem: String,
}

/// Floating-point operations and bytes of one forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// Multiplications and additions per token in products with weights.
    pub weights: u64,
    /// The same in attention, per token at the full length.
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
            initial_deviation: default_deviation(),
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

    /// How many blocks a pass goes through.
    pub fn layers(&self) -> usize {
        match self.order.len() {
            0 => self.stored_layers(),
            layers => layers,
        }
    }

    /// How many blocks have weights.
    pub fn stored_layers(&self) -> usize {
        let repeats = self.blocks.iter().map(|block| block.repeat);
        repeats.fold(0, usize::saturating_add)
    }

    /// The settings of each block that has weights, repeats written out.
    pub fn layer_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        self.blocks
            .iter()
            .flat_map(|block| std::iter::repeat_n(block, block.repeat))
    }

    /// The settings of each block that a pass goes through.
    pub fn passed_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        let stored: Vec<&BlockConfig> = self.layer_blocks().collect();
        let order = match self.order.as_slice() {
            [] => (0..stored.len()).collect(),
            order => order.to_vec(),
        };
        order.into_iter().map(move |number| stored[number])
    }

    /// Width of the tables of tokens and positions.
    pub fn embedding_width(&self) -> usize {
        self.embedding.width.unwrap_or(self.width)
    }

    /// Width of what the heads read: all residual streams beside one another.
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

    /// Where the attentions of its blocks stand.
    pub fn place(&self, role: Role) -> Place {
        let deviation = self.initial_deviation;
        Place {
            role,
            widths: Widths::all(self.width),
            length: self.length,
            positions: match self.positions {
                // Another sequence has places of its own.
                _ if role == Role::Cross => RelativePositions::None,
                PositionsConfig::Rotary(_) => RelativePositions::Rotary,
                PositionsConfig::Alibi {} | PositionsConfig::T5Buckets(_) => {
                    RelativePositions::Bias
                }
                _ => RelativePositions::None,
            },
            deviation,
            // Each block adds twice to the residual stream; scaling its writers keeps the sum's variance at one
            // whatever the depth (Radford et al. 2019).
            residual_deviation: deviation / (2.0 * self.stored_layers() as f64).sqrt(),
        }
    }

    /// The same model in one spelling: implied sizes written out, equal neighbours under one entry.
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
                Some(last) if same_but_repeat(last, &block) => last.repeat += block.repeat,
                _ => config.blocks.push(block),
            }
        }
        config
    }

    /// The settings without dropout, which is all that a model in use depends on.
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

    /// Operations of one forward pass, per token. An encoder's are not among them: it reads other tokens.
    pub fn operations(&self) -> Operations {
        let width = self.width as u64;
        let mut total = Operations {
            weights: match self.head {
                HeadConfig::None => 0,
                _ => 2 * self.states_width() as u64 * self.vocabulary as u64,
            },
            attention: 0,
        };
        for block in self.passed_blocks() {
            let feed_forward = block.feed_forward.operations(width);
            // Settings that nobody can build may still be asked about; their sums stop at the largest number.
            total.weights = total.weights.saturating_add(feed_forward);
            let attentions = [Some(&block.attention), block.cross.as_ref()];
            for attention in attentions.into_iter().flatten() {
                let attention = attention.operations(self.width, self.length);
                total.weights = total.weights.saturating_add(attention.weights);
                total.attention = total.attention.saturating_add(attention.attention);
            }
        }
        total
    }

    /// Whether a cache can serve all of its layers; where not, each new token needs a pass over the whole sequence.
    pub fn cacheable(&self) -> bool {
        let mut blocks = self.blocks.iter();
        self.role == Role::Causal
            && blocks.all(|block| block.attention.cache(self.width) != CacheSize::Impossible)
    }

    /// Numbers that one more position adds to a cache.
    pub fn cache_numbers(&self) -> u64 {
        self.cached(|size| match size {
            CacheSize::Growing(numbers) => numbers,
            CacheSize::Fixed(_) | CacheSize::Impossible => 0,
        })
    }

    /// Numbers that a cache holds at most of the layers in which it stops growing.
    pub fn constant_cache_numbers(&self) -> u64 {
        self.cached(|size| match size {
            CacheSize::Fixed(numbers) => numbers,
            CacheSize::Growing(_) | CacheSize::Impossible => 0,
        })
    }

    fn cached(&self, numbers: impl Fn(CacheSize) -> u64) -> u64 {
        let layers = self.passed_blocks();
        let numbers = layers.map(|block| numbers(block.attention.cache(self.width)));
        numbers.fold(0, u64::saturating_add)
    }
}

fn same_but_repeat(one: &BlockConfig, other: &BlockConfig) -> bool {
    let other = BlockConfig {
        repeat: one.repeat,
        ..other.clone()
    };
    *one == other
}
