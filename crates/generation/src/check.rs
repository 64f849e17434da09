//! Whether a model can make texts from a prompt or source, asked before anything is computed.

use attentive_model::{Model, ModelConfig, Role};
use attentive_text::Tokenizer;

use crate::{GenerationConfig, GenerationError, Rules};

/// Whether `prompt` can be continued with these settings; for a model with an encoder, whether it can be its source.
pub fn check(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<(), GenerationError> {
    config.sampling.validate()?;
    check_tokenizer(model, tokenizer)?;
    check_rules(model, &config.rules)?;
    check_prompt(model, prompt)
}

/// Whether the model has all tokens of the tokenizer.
pub fn check_tokenizer(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), GenerationError> {
    let vocabulary = model.config().vocabulary;
    match tokenizer.map(Tokenizer::vocabulary) {
        Some(tokens) if tokens > vocabulary => Err(GenerationError::LargeTokenizer {
            tokenizer: tokens,
            model: vocabulary,
        }),
        _ => Ok(()),
    }
}

/// Whether the model can make texts by these rules.
pub(crate) fn check_rules(model: &Model, rules: &Rules) -> Result<(), GenerationError> {
    rules.validate()?;
    let config = model.config();
    if config.role != Role::Causal || config.head.words().is_none() {
        return Err(GenerationError::NoDecoder);
    }
    let start = match (&config.encoder, rules.start) {
        (Some(_), None) => return Err(GenerationError::NoStart),
        (Some(_), start) => start.map(|id| ("the decoder's first token", id)),
        (None, _) => None,
    };
    let vocabulary = config.vocabulary;
    let mut put = start.into_iter().chain(rules.put());
    match put.find(|(_, id)| *id as usize >= vocabulary) {
        Some((role, id)) => Err(GenerationError::UnknownSpecial {
            role,
            id,
            vocabulary,
        }),
        None => Ok(()),
    }
}

/// Whether the model can read `prompt`: continue it, or where it has an encoder, read it there.
pub fn check_prompt(model: &Model, prompt: &[u32]) -> Result<(), GenerationError> {
    let config = model.config();
    let reader: &ModelConfig = config.encoder.as_deref().unwrap_or(config);
    let (tokens, length, vocabulary) = (prompt.len(), reader.length, reader.vocabulary);
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

/// The id that fills up the shorter of several sources: any will do, if the files name none.
pub(crate) fn padding(model: &Model, rules: &Rules) -> u32 {
    let encoder = model.config().encoder.as_ref();
    let vocabulary = encoder.map_or(0, |encoder| encoder.vocabulary);
    let known = rules.padding.filter(|id| (*id as usize) < vocabulary);
    known.unwrap_or(0)
}
