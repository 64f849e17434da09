//! Beam search settings from arguments and the folder's generation settings.

use anyhow::Result;
use attentive::checkpoint::Description;
use attentive::generation::{self, BeamConfig, GenerationSettings, LogitsProcessors};

use crate::arguments::{EarlyStopping, SearchArguments};

/// Default maximum number of new tokens.
const MAX_NEW_TOKENS: usize = 200;

/// Beam search; the folder's settings fill in what the arguments leave out.
pub fn beam_config(
    arguments: &SearchArguments,
    description: &Description,
    num_beams: usize,
    max_new_tokens: usize,
    processors: LogitsProcessors,
) -> BeamConfig {
    let settings = &description.generation;
    let early_stopping = arguments.early_stopping.map(|when| match when {
        EarlyStopping::True => generation::EarlyStopping::True,
        EarlyStopping::False => generation::EarlyStopping::False,
        EarlyStopping::Never => generation::EarlyStopping::Never,
    });
    BeamConfig {
        max_new_tokens,
        num_beams,
        num_return_sequences: 1,
        length_penalty: arguments
            .length_penalty
            .or(settings.length_penalty)
            .unwrap_or(1.0),
        early_stopping: early_stopping
            .or(settings.early_stopping)
            .unwrap_or_default(),
        renormalize_logits: settings.renormalize_logits.unwrap_or(false),
        tokenizer_vocabulary: None,
        processors,
    }
}

/// The maximum number of new tokens after a prompt.
pub fn max_new_tokens(
    given: Option<usize>,
    settings: &GenerationSettings,
    prompt_length: usize,
) -> Result<usize> {
    Ok(match given {
        Some(count) => count,
        None => settings
            .max_new_tokens_after(prompt_length)?
            .unwrap_or(MAX_NEW_TOKENS),
    })
}
