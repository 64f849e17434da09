//! The decoding loop: read, choose, stream, until something says stop.

use std::ops::ControlFlow;

use attentive_model::Model;
use attentive_text::{TextError, TextStream, Tokenizer};

use crate::{Sampling, SamplingError, Session, StopStrings};

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    /// The most tokens to make.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Strings that end the text; they are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the text; they are not part of it.
    pub end: Vec<u32>,
}

/// What was generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The new tokens, without the one that ended the text.
    pub ids: Vec<u32>,
    /// The new text; empty without a tokenizer.
    pub text: String,
    /// Why it ended.
    pub reason: StopReason,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A token that ends texts.
    End,
    /// A stop string.
    Stop,
    /// As many tokens as were asked for.
    Length,
    /// Whoever was shown the text wanted no more.
    Unwanted,
}

/// One step of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'t> {
    /// The new token; none for text that was held back until the end.
    pub id: Option<u32>,
    /// The text that is now final; often one word, sometimes nothing yet.
    pub text: &'t str,
}

/// Why nothing can be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// A sampling setting is out of its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The prompt has no tokens.
    #[error(
        "the prompt is empty, and the model has no token that a text begins with; give a prompt"
    )]
    EmptyPrompt,
    /// The prompt is too long.
    #[error("the prompt has {tokens} tokens and the model reads at most {length}; shorten it")]
    LongPrompt {
        /// Tokens of the prompt.
        tokens: usize,
        /// The model's length.
        length: usize,
    },
    /// A token of the prompt does not exist.
    #[error("token id {id} is outside the vocabulary of {vocabulary}; use 0 to {}", vocabulary - 1)]
    UnknownId {
        /// The id.
        id: u32,
        /// The model's vocabulary.
        vocabulary: usize,
    },
    /// The tokenizer has tokens that the model lacks.
    #[error(
        "the tokenizer has {tokenizer} tokens and the model only {model}; use the tokenizer that the model was trained with"
    )]
    LargeTokenizer {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// The model's vocabulary.
        model: usize,
    },
    /// The model is broken.
    #[error("the model gives scores that are not numbers; its weights are broken")]
    NotANumber,
    /// The tokens cannot be made text.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Whether `prompt` can be continued with these settings.
pub fn check(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<(), GenerationError> {
    config.sampling.validate()?;
    let vocabulary = model.config().vocabulary;
    match tokenizer.map(Tokenizer::vocabulary) {
        Some(tokens) if tokens > vocabulary => Err(GenerationError::LargeTokenizer {
            tokenizer: tokens,
            model: vocabulary,
        }),
        _ => check_prompt(model, prompt),
    }
}

/// Continues `prompt`, handing each piece to `show` as it comes, which may end the text by breaking.
///
/// Without a tokenizer there are only ids, and stop strings are never met.
pub fn generate(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    config: &GenerationConfig,
    mut show: impl FnMut(Piece) -> ControlFlow<()>,
) -> Result<Generated, GenerationError> {
    check(model, tokenizer, prompt, config)?;
    let possible = tokenizer.map_or(model.config().vocabulary, Tokenizer::vocabulary);
    let mut session = Session::new(model);
    let mut stream = tokenizer.map(TextStream::new);
    let mut stops = StopStrings::new(&config.stop);
    let mut generated = Generated {
        ids: Vec::new(),
        text: String::new(),
        reason: StopReason::Length,
    };
    let mut unread = prompt.to_vec();
    while generated.ids.len() < config.max_tokens {
        let mut logits = session.read(&unread);
        // A model may have spare entries at the end of its vocabulary, which stand for no text.
        logits[possible..].fill(f32::NEG_INFINITY);
        let id = config.sampling.choose(logits, session.ids())?;
        if config.end.contains(&id) {
            generated.reason = StopReason::End;
            break;
        }
        generated.ids.push(id);
        unread = vec![id];
        let piece = stream.as_mut().map(|stream| stream.push(id));
        let piece = piece.transpose()?.unwrap_or_default();
        let (safe, stopped) = stops.push(&piece);
        let shown = show(Piece {
            id: Some(id),
            text: &safe,
        });
        generated.text += &safe;
        if stopped {
            generated.reason = StopReason::Stop;
            return Ok(generated);
        }
        if shown.is_break() {
            generated.reason = StopReason::Unwanted;
            return Ok(generated);
        }
    }
    let held_back = stream.map_or_else(String::new, TextStream::finish);
    let (mut rest, stopped) = stops.push(&held_back);
    rest += &stops.finish();
    if stopped {
        generated.reason = StopReason::Stop;
    }
    if !rest.is_empty() {
        // Nothing is left to end.
        let _ = show(Piece {
            id: None,
            text: &rest,
        });
        generated.text += &rest;
    }
    Ok(generated)
}

fn check_prompt(model: &Model, prompt: &[u32]) -> Result<(), GenerationError> {
    let config = model.config();
    if prompt.is_empty() {
        return Err(GenerationError::EmptyPrompt);
    }
    if prompt.len() > config.length {
        return Err(GenerationError::LongPrompt {
            tokens: prompt.len(),
            length: config.length,
        });
    }
    let vocabulary = config.vocabulary;
    match prompt.iter().find(|id| **id as usize >= vocabulary) {
        Some(id) => Err(GenerationError::UnknownId {
            id: *id,
            vocabulary,
        }),
        None => Ok(()),
    }
}
