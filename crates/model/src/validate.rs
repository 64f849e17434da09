//! Validation of a model's settings.

use crate::checks::{MAX_BLOCKS, positive, probability, refuse, size, within};
use crate::{BlockConfig, ConfigError, HeadConfig, ModelConfig, ResidualConfig, Role};

impl ModelConfig {
    /// Whether the settings are valid, each alone and together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_sizes()?;
        self.embedding.validate(self)?;
        self.positions.validate(self)?;
        self.head.validate(self)?;
        if let Some(pooler) = &self.pooler {
            pooler.validate()?;
        }
        if let Some(classes) = &self.classes {
            classes.validate(self)?;
        }
        if let Some(labels) = &self.labels {
            labels.validate()?;
        }
        if let Some(norm) = &self.final_norm {
            positive("final_norm.epsilon", norm.epsilon())?;
        }
        self.validate_blocks()?;
        self.residual.validate(self)?;
        if let Some(globals) = self.globals {
            globals.validate(self)?;
        }
        match &self.encoder {
            Some(encoder) => self.validate_encoder(encoder),
            None if self.embedding.shared => refuse(
                "embedding.shared",
                "only an encoder can share the token embedding of its decoder; leave it out",
            ),
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

    fn validate_encoder(&self, encoder: &ModelConfig) -> Result<(), ConfigError> {
        let inside = |error: ConfigError| ConfigError {
            field: format!("encoder.{}", error.field),
            ..error
        };
        if self.blocks.iter().all(|block| block.cross.is_none()) {
            return refuse(
                "encoder",
                "no block reads it; give blocks a cross attention, or leave the encoder out",
            );
        }
        let heads = [
            ("head", encoder.head != HeadConfig::None),
            ("pooler", encoder.pooler.is_some()),
            ("classes", encoder.classes.is_some()),
            ("labels", encoder.labels.is_some()),
            ("encoder", encoder.encoder.is_some()),
        ];
        if let Some((field, _)) = heads.into_iter().find(|(_, set)| *set) {
            let advice = if field == "head" {
                "use \"none\""
            } else {
                "leave it out"
            };
            return refuse(
                &format!("encoder.{field}"),
                format!("an encoder has no heads or encoder of its own; {advice}"),
            );
        }
        if encoder.residual != ResidualConfig::One {
            return refuse(
                "encoder.residual",
                "cross attention reads a single stream; use \"one\"",
            );
        }
        if !encoder.embedding.shared {
            return encoder.validate().map_err(inside);
        }
        let (decoder, shared) = (
            [self.vocabulary, self.embedding_width()],
            [encoder.vocabulary, encoder.embedding_width()],
        );
        if self.patches.is_some() || decoder != shared {
            return refuse(
                "encoder.embedding.shared",
                format!(
                    "the decoder's token embedding {decoder:?} does not match {shared:?}; give the encoder one of its own"
                ),
            );
        }
        let mut unshared = encoder.clone();
        unshared.embedding.shared = false;
        unshared.validate().map_err(inside)
    }
}
