//! Validation of a model's settings.

use crate::attention::Role;
use crate::block::{BlockConfig, ResidualConfig};
use crate::checks::{MAX_BLOCKS, positive, probability, refuse, size, within};
use crate::{ConfigError, ModelConfig, StackConfig};

impl ModelConfig {
    /// Whether the settings are valid, each alone and together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let stack = &self.stack;
        if stack.embedding.shared {
            return refuse(
                "embedding.shared",
                "only an encoder can share the token embedding of its decoder; leave it out",
            );
        }
        stack.validate()?;
        self.head.validate(stack)?;
        if let Some(pooler) = &self.pooler {
            pooler.validate()?;
        }
        if let Some(classifier) = &self.sequence_classifier {
            classifier.validate(self)?;
        }
        if let Some(classifier) = &self.token_classifier {
            classifier.validate()?;
        }
        match &self.encoder {
            Some(encoder) => self.validate_encoder(encoder),
            None => Ok(()),
        }
    }

    fn validate_encoder(&self, encoder: &StackConfig) -> Result<(), ConfigError> {
        let decoder = &self.stack;
        if decoder.blocks.iter().all(|block| block.cross.is_none()) {
            return refuse(
                "encoder",
                "no block reads it; give blocks cross-attention, or leave the encoder out",
            );
        }
        if encoder.blocks.iter().any(|block| block.cross.is_some()) {
            return refuse(
                "encoder.blocks",
                "an encoder has no cross-attention, since there is nothing for it to read; leave it out",
            );
        }
        if encoder.residual != ResidualConfig::One {
            return refuse(
                "encoder.residual",
                "cross-attention reads a single stream; use \"one\"",
            );
        }
        let table = |stack: &StackConfig| [stack.vocabulary, stack.embedding_width()];
        let (ours, theirs) = (table(decoder), table(encoder));
        if encoder.embedding.shared && (decoder.patches.is_some() || ours != theirs) {
            return refuse(
                "encoder.embedding.shared",
                format!(
                    "the decoder's token embedding {ours:?} does not match {theirs:?}; give the encoder one of its own"
                ),
            );
        }
        encoder.validate().map_err(|error| ConfigError {
            field: format!("encoder.{}", error.field),
            ..error
        })
    }
}

impl StackConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        self.validate_sizes()?;
        self.embedding.validate(self)?;
        self.positions.validate(self)?;
        if let Some(norm) = &self.final_norm {
            positive("final_norm.epsilon", norm.epsilon())?;
        }
        self.validate_blocks()?;
        self.residual.validate(self)?;
        match self.globals {
            Some(globals) => globals.validate(self),
            None => Ok(()),
        }
    }

    fn validate_sizes(&self) -> Result<(), ConfigError> {
        match &self.patches {
            Some(patches) => patches.validate(self.length)?,
            None => size("vocabulary", self.vocabulary)?,
        }
        if self.patches.is_some() && self.vocabulary != 0 {
            return refuse(
                "vocabulary",
                "this model reads images and has none; leave it out",
            );
        }
        size("length", self.length)?;
        size("width", self.width)?;
        if self.role == Role::Cross {
            return refuse(
                "role",
                "a stack needs self-attention; use causal or bidirectional",
            );
        }
        probability("embedding_dropout", self.embedding_dropout)?;
        positive("init_std", self.init_std)
    }

    fn validate_blocks(&self) -> Result<(), ConfigError> {
        if self.blocks.is_empty() {
            return refuse("blocks", "there must be at least one block");
        }
        for (index, block) in self.blocks.iter().enumerate() {
            self.validate_block(&format!("blocks.{index}"), block)?;
        }
        if self.order.is_empty() {
            return Ok(());
        }
        within("order", self.order.len(), MAX_BLOCKS)?;
        let stored = self.stored_layers();
        if let Some(number) = self.order.iter().find(|number| **number >= stored) {
            return refuse(
                "order",
                format!("there is no block {number}; blocks are 0 to {}", stored - 1),
            );
        }
        match (0..stored).find(|number| !self.order.contains(number)) {
            Some(number) => refuse(
                "order",
                format!("block {number} is missing; name each block at least once"),
            ),
            None => Ok(()),
        }
    }

    fn validate_block(&self, path: &str, block: &BlockConfig) -> Result<(), ConfigError> {
        within(&format!("{path}.repeat"), block.repeat, MAX_BLOCKS)?;
        probability(&format!("{path}.dropout"), block.dropout)?;
        positive(&format!("{path}.norm.epsilon"), block.norm.epsilon())?;
        let feed_forward = format!("{path}.feed_forward");
        block.feed_forward.validate(&feed_forward)?;
        if let Some(cross) = &block.cross {
            cross.validate(&format!("{path}.cross"), &self.attention_spec(Role::Cross))?;
        }
        let path = format!("{path}.attention");
        block
            .attention
            .validate(&path, &self.attention_spec(self.role))?;
        match block.attention.heads() {
            Some(heads) => self.positions.validate_block(&path, &heads, self),
            None => Ok(()),
        }
    }
}
