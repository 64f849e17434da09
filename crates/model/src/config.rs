//! The settings of a whole model: one typed tree, shared by the library, recipes and checkpoints.

use serde::{Deserialize, Serialize};

use crate::{AttentionConfig, BlockConfig, FeedForwardConfig, NormConfig, PositionsConfig};

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
        if let PositionsConfig::Rotary(rotary) = &self.positions {
            positive("positions.theta", rotary.theta)?;
        }
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
        let hidden = format!("{path}.feed_forward.hidden_width");
        size(&hidden, block.feed_forward.hidden_width())?;
        let AttentionConfig::Full(attention) = &block.attention;
        let path = format!("{path}.attention");
        size(&format!("{path}.heads"), attention.heads)?;
        probability(&format!("{path}.dropout"), attention.dropout)?;
        let (heads, shared) = (attention.heads, attention.key_value_heads());
        if shared == 0 || !heads.is_multiple_of(shared) {
            return refuse(
                &format!("{path}.key_value_heads"),
                format!("{shared} does not divide the {heads} heads"),
            );
        }
        let width = self.width;
        if attention.head_width.is_none() && !width.is_multiple_of(heads) {
            return refuse(
                &format!("{path}.heads"),
                format!(
                    "{heads} does not divide the width {width}; say head_width, or choose a divisor"
                ),
            );
        }
        let head_width = attention.head_width(width);
        size(&format!("{path}.head_width"), head_width)?;
        size(&format!("{path}.heads"), heads.saturating_mul(head_width))?;
        if let PositionsConfig::Rotary(_) = self.positions {
            if !head_width.is_multiple_of(2) {
                return refuse(
                    &format!("{path}.head_width"),
                    format!("{head_width} is odd, and rotary positions rotate pairs"),
                );
            }
            if head_width != self.head_width() {
                return refuse(
                    &format!("{path}.head_width"),
                    format!(
                        "{head_width} differs from the first block's {}, and rotary positions are shared",
                        self.head_width()
                    ),
                );
            }
        }
        Ok(())
    }

    /// Width of one head of the first block.
    pub fn head_width(&self) -> usize {
        let AttentionConfig::Full(attention) = &self.blocks[0].attention;
        attention.head_width(self.width)
    }

    /// The same model in one spelling: implied sizes written out, equal neighbours under one entry.
    pub fn canonical(&self) -> Self {
        let mut config = self.clone();
        config.blocks.clear();
        for block in &self.blocks {
            let mut block = block.clone();
            let AttentionConfig::Full(attention) = &mut block.attention;
            attention.key_value_heads = Some(attention.key_value_heads());
            attention.head_width = Some(attention.head_width(self.width));
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
            let AttentionConfig::Full(attention) = &mut block.attention;
            attention.dropout = 0.0;
        }
        config
    }

    /// Operations of one forward pass, per token.
    pub fn operations(&self) -> Operations {
        let width = self.width as u64;
        let mut weights = 2 * width * self.vocabulary as u64;
        let mut attention_operations = 0;
        for block in self.layer_blocks() {
            let AttentionConfig::Full(attention) = &block.attention;
            let head_width = attention.head_width(self.width) as u64;
            let inner = attention.heads as u64 * head_width;
            let shared = attention.key_value_heads() as u64 * head_width;
            let maps = match &block.feed_forward {
                FeedForwardConfig::Plain(_) => 2,
                FeedForwardConfig::Gated(_) => 3,
            };
            let hidden = block.feed_forward.hidden_width() as u64;
            weights += 2 * width * (2 * inner + 2 * shared + maps * hidden);
            // Scores and weighted sums: each query meets half of the positions on average.
            attention_operations += 2 * inner * self.length as u64;
        }
        Operations {
            weights,
            attention: attention_operations,
        }
    }
}

/// No size of a real model is near it, and products of two such sizes still fit into 64 bits.
const LARGEST_SIZE: usize = 1 << 28;

/// Far above the deepest models; a list of blocks of this length still fits into memory.
const MOST_BLOCKS: usize = 10_000;

fn same_but_repeat(one: &BlockConfig, other: &BlockConfig) -> bool {
    let other = BlockConfig {
        repeat: one.repeat,
        ..other.clone()
    };
    *one == other
}

fn refuse<T>(field: &str, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError {
        field: field.to_owned(),
        problem: problem.into(),
    })
}

fn size(field: &str, value: usize) -> Result<(), ConfigError> {
    within(field, value, LARGEST_SIZE)
}

fn within(field: &str, value: usize, most: usize) -> Result<(), ConfigError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    refuse(field, format!("{value} is out of range; use 1 to {most}"))
}

fn probability(field: &str, value: f64) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    refuse(
        field,
        format!("{value} is out of range; use 0 or more and less than 1"),
    )
}

fn positive(field: &str, value: f64) -> Result<(), ConfigError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    refuse(field, format!("{value} is out of range; use more than 0"))
}
