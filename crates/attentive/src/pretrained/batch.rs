//! Batches of texts.

use attentive_tasks::Batcher;

use super::{Pretrained, PretrainedError};

/// How texts are batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Texts per batch.
    pub size: usize,
    /// Truncates texts that exceed the model's length, or the `max_seq_length` of its folder, instead of refusing them.
    pub truncate: bool,
    /// The number of earlier texts, for errors that number them.
    pub offset: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            size: 32,
            truncate: false,
            offset: 0,
        }
    }
}

impl Pretrained {
    /// The batcher of an encoder; `max_length` is how many tokens its folder allows.
    pub(super) fn batcher(
        &self,
        options: BatchOptions,
        max_length: Option<usize>,
    ) -> Result<Batcher<'_>, PretrainedError> {
        let config = self.model.config();
        if config.stack.patches.is_some() {
            return Err(self.cannot(PretrainedError::ReadsImages));
        }
        if config.encoder.is_some() {
            return Err(self.cannot(PretrainedError::EncoderDecoder));
        }
        Ok(Batcher {
            model: &self.model,
            tokenizer: self.required_tokenizer()?,
            batch_size: options.size,
            offset: options.offset,
            max_length,
            truncate: options.truncate,
        })
    }
}
