//! The settings of a whole model: one typed tree, shared by the library, recipes and checkpoints.

use serde::{Deserialize, Serialize};

use crate::checks::{MOST_BLOCKS, positive, probability, refuse, size, within};
use crate::{
    BlockConfig, CacheSize, NormConfig, Place, PositionsConfig, RelativePositions, Role, Widths,
};

/// Settings of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// How many tokens there are; in a recipe, zero stands for as many as the tokenizer has.
    #[serde(default)]
    pub vocabulary: usize,
    /// The longest sequence.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Dropout on the embeddings.
    #[serde(default)]
    pub embedding_dropout: f64,
    /// Spread of the initial weights.
    #[serde(default = "default_deviation")]
    pub initial_deviation: f64,
    /// Where the output map's weights come from.
    #[serde(default = "tied")]
    pub head: HeadConfig,
    /// How the model knows the order of its tokens.
    pub positions: PositionsConfig,
    /// The norm before the head, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_norm: Option<NormConfig>,
    /// The blocks, in order; equal neighbours may share one entry.
    pub blocks: Vec<BlockConfig>,
}

/// Where the output map's weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadConfig {
    /// The token embedding serves in both directions. Press and Wolf 2016.
    Tied,
    /// A matrix of its own.
    Separate,
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
    /// How many blocks there are.
    pub fn layers(&self) -> usize {
        self.blocks.iter().map(|block| block.repeat).sum()
    }

    /// The settings of each block, repeats written out.
    pub fn layer_blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        self.blocks
            .iter()
            .flat_map(|block| std::iter::repeat_n(block, block.repeat))
    }

    /// Whether the settings can work together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        size("vocabulary", self.vocabulary)?;
        size("length", self.length)?;
        size("width", self.width)?;
        probability("embedding_dropout", self.embedding_dropout)?;
        positive("initial_deviation", self.initial_deviation)?;
        self.positions.validate(self)?;
        if let Some(norm) = &self.final_norm {
            positive("final_norm.epsilon", norm.epsilon())?;
        }
        if self.blocks.is_empty() {
            return refuse("blocks", "there must be at least one block");
        }
        for (index, block) in self.blocks.iter().enumerate() {
            self.validate_block(&format!("blocks.{index}"), block)?;
        }
        Ok(())
    }

    fn validate_block(&self, path: &str, block: &BlockConfig) -> Result<(), ConfigError> {
        within(&format!("{path}.repeat"), block.repeat, MOST_BLOCKS)?;
        probability(&format!("{path}.dropout"), block.dropout)?;
        positive(&format!("{path}.norm.epsilon"), block.norm.epsilon())?;
        let feed_forward = format!("{path}.feed_forward");
        block.feed_forward.validate(&feed_forward)?;
        let path = format!("{path}.attention");
        block.attention.validate(&path, &self.place(Role::Causal))?;
        match block.attention.heads() {
            Some(heads) => self.positions.validate_block(&path, &heads, self),
            None => Ok(()),
        }
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
                PositionsConfig::Rotary(_) => RelativePositions::Rotary,
                PositionsConfig::Alibi {} | PositionsConfig::T5Buckets(_) => {
                    RelativePositions::Bias
                }
                _ => RelativePositions::None,
            },
            deviation,
            // Each block adds twice to the residual stream; scaling its writers keeps the sum's variance at one
            // whatever the depth (Radford et al. 2019).
            residual_deviation: deviation / (2.0 * self.layers() as f64).sqrt(),
        }
    }

    /// The same model in one spelling: implied sizes written out, equal neighbours under one entry.
    pub fn canonical(&self) -> Self {
        let mut config = self.clone();
        config.blocks.clear();
        for block in &self.blocks {
            let mut block = block.clone();
            block.attention = block.attention.canonical(self.width);
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
        }
        config
    }

    /// Operations of one forward pass, per token.
    pub fn operations(&self) -> Operations {
        let width = self.width as u64;
        let mut total = Operations {
            weights: 2 * width * self.vocabulary as u64,
            attention: 0,
        };
        for block in self.layer_blocks() {
            let attention = block.attention.operations(self.width, self.length);
            // Settings that nobody can build may still be asked about; their sums stop at the largest number.
            total.weights = total
                .weights
                .saturating_add(attention.weights)
                .saturating_add(block.feed_forward.operations(width));
            total.attention = total.attention.saturating_add(attention.attention);
        }
        total
    }

    /// Whether a cache can serve all of its layers; where not, each new token needs a pass over the whole sequence.
    pub fn cacheable(&self) -> bool {
        let mut blocks = self.blocks.iter();
        blocks.all(|block| block.attention.cache(self.width) != CacheSize::Impossible)
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
        let layers = self.layer_blocks();
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
