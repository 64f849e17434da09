//! Checks that a model can generate from a prompt or source, before anything is computed.

use attentive_model::Model;
use attentive_model::attention::Role;
use attentive_text::Tokenizer;

use crate::{GenerationConfig, GenerationError, LogitsProcessors};

/// Whether `prompt` can be continued with these settings, or encoded where the model has an encoder.
pub fn check(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<(), GenerationError> {
    config.sampling.validate()?;
    check_tokenizer(model, tokenizer)?;
    check_decoder(model, &config.processors)?;
    check_prompt(model, prompt)
}

/// Whether the model is causal and has a language-modelling head.
pub fn check_can_generate(model: &Model) -> Result<(), GenerationError> {
    let config = model.config();
    match config.stack.role == Role::Causal && config.head.lm_head().is_some() {
        true => Ok(()),
        false => Err(GenerationError::NoDecoder),
    }
}

/// Whether the model's vocabulary has all tokens of the tokenizer.
pub fn check_tokenizer(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), GenerationError> {
    let vocabulary = model.config().stack.vocabulary;
    match tokenizer.map(Tokenizer::vocabulary) {
        Some(tokens) if tokens > vocabulary => Err(GenerationError::LargeTokenizer {
            tokenizer: tokens,
            model: vocabulary,
        }),
        _ => Ok(()),
    }
}

/// Whether the model is a decoder whose vocabulary has all tokens that the processors name.
pub(crate) fn check_decoder(
    model: &Model,
    processors: &LogitsProcessors,
) -> Result<(), GenerationError> {
    processors.validate()?;
    check_can_generate(model)?;
    let config = model.config();
    let start = match (&config.encoder, processors.decoder_start) {
        (Some(_), None) => return Err(GenerationError::NoStart),
        (Some(_), start) => start.map(|id| ("decoder_start_token_id", id)),
        (None, _) => None,
    };
    let vocabulary = config.stack.vocabulary;
    let mut required = start.into_iter().chain(processors.required_tokens());
    match required.find(|(_, id)| *id as usize >= vocabulary) {
        Some((setting, id)) => Err(GenerationError::UnknownSpecialToken {
            setting,
            id,
            vocabulary,
        }),
        None => Ok(()),
    }
}

/// Whether `prompt` fits the model's length and vocabulary, or those of its encoder.
pub fn check_prompt(model: &Model, prompt: &[u32]) -> Result<(), GenerationError> {
    let config = model.config();
    let stack = config.encoder.as_deref().unwrap_or(&config.stack);
    let (tokens, length, vocabulary) = (prompt.len(), stack.length, stack.vocabulary);
    match config.encoder.is_some() {
        true if tokens == 0 => return Err(GenerationError::EmptySource),
        true if tokens > length => return Err(GenerationError::LongSource { tokens, length }),
        false if tokens == 0 => return Err(GenerationError::EmptyPrompt),
        false if tokens > length => return Err(GenerationError::LongPrompt { tokens, length }),
        _ => {}
    }
    match prompt.iter().find(|id| **id as usize >= vocabulary) {
        Some(id) => Err(GenerationError::UnknownId {
            id: *id,
            vocabulary,
        }),
        None => Ok(()),
    }
}

/// The id that pads the encoder's input. It is masked, so any will do if the files name none.
pub(crate) fn pad_token(model: &Model, processors: &LogitsProcessors) -> u32 {
    let encoder = model.config().encoder.as_ref();
    let vocabulary = encoder.map_or(0, |encoder| encoder.vocabulary);
    let pad = processors.pad.filter(|id| (*id as usize) < vocabulary);
    pad.unwrap_or(0)
}
