//! The decoding loop of greedy decoding and sampling, with streamed text.

use std::ops::ControlFlow;

use attentive_model::Model;
use attentive_text::{TextStream, Tokenizer};

use crate::check::pad_token;
use crate::logits_processors::ProcessorContext;
use crate::{GenerationError, LogitsProcessors, Sampling, Session, StopStrings, check, encode};

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Strings that end the text; they are not part of it.
    pub stop_strings: Vec<String>,
    /// The logits processors of the model's folder.
    pub processors: LogitsProcessors,
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
    /// An end-of-text token.
    Eos,
    /// A stop string.
    StopString,
    /// The maximum number of new tokens, or the model's length.
    Length,
    /// The callback.
    Cancelled,
}

/// One chunk of the streamed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextChunk<'t> {
    /// The new token; none for the text that was still pending at the end.
    pub id: Option<u32>,
    /// The text that is now final: often one word, sometimes empty.
    pub text: &'t str,
}

/// Continues `prompt`, or decodes it where the model has an encoder. Each chunk is passed to `on_chunk`, which may end the
/// text by breaking.
///
/// Without a tokenizer there are only ids, and stop strings have no effect.
pub fn generate(
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    config: &GenerationConfig,
    mut on_chunk: impl FnMut(TextChunk) -> ControlFlow<()>,
) -> Result<Generated, GenerationError> {
    check(model, tokenizer, prompt, config)?;
    let vocabulary = tokenizer.map_or(model.config().stack.vocabulary, Tokenizer::vocabulary);
    let (mut session, decoder_input, max_new_tokens) = begin(model, prompt, config)?;
    let mut stream = tokenizer.map(TextStream::new);
    let mut stop_strings = StopStrings::new(&config.stop_strings);
    let mut generated = Generated {
        ids: Vec::new(),
        text: String::new(),
        reason: StopReason::Length,
    };
    while generated.ids.len() < max_new_tokens {
        let mut logits = match generated.ids.last() {
            None => session.prefill(&decoder_input),
            Some(id) => session.step(*id),
        };
        // A model's vocabulary may be padded beyond the tokenizer's.
        logits[vocabulary..].fill(f32::NEG_INFINITY);
        let context = ProcessorContext {
            source: prompt,
            tokens: session.ids(),
            generated: generated.ids.len(),
            max_new_tokens,
        };
        config.processors.apply(&mut logits, context);
        if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) {
            return Err(GenerationError::AllTokensMasked);
        }
        let id = config.sampling.sample(logits, session.ids().len())?;
        if config.processors.eos.contains(&id) {
            generated.reason = StopReason::Eos;
            break;
        }
        generated.ids.push(id);
        let text = stream.as_mut().map(|stream| stream.push(id));
        let text = text.transpose()?.unwrap_or_default();
        let (text, stopped) = stop_strings.push(&text);
        let flow = on_chunk(TextChunk {
            id: Some(id),
            text: &text,
        });
        generated.text += &text;
        if stopped {
            generated.reason = StopReason::StopString;
            return Ok(generated);
        }
        if flow.is_break() {
            generated.reason = StopReason::Cancelled;
            return Ok(generated);
        }
    }
    let pending = stream.map_or_else(String::new, TextStream::finish);
    let (mut rest, stopped) = stop_strings.push(&pending);
    rest += &stop_strings.finish();
    if stopped {
        generated.reason = StopReason::StopString;
    }
    if !rest.is_empty() {
        // The text is complete, so breaking has no effect.
        let _ = on_chunk(TextChunk {
            id: None,
            text: &rest,
        });
        generated.text += &rest;
    }
    Ok(generated)
}

/// A session, the tokens of its prefill, and the maximum number of new tokens.
fn begin<'m>(
    model: &'m Model,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<(Session<'m>, Vec<u32>, usize), GenerationError> {
    if model.config().encoder.is_none() {
        return Ok((Session::new(model), prompt.to_vec(), config.max_new_tokens));
    }
    let memory = encode(
        model,
        &[prompt.to_vec()],
        pad_token(model, &config.processors),
    );
    let start = config
        .processors
        .decoder_start
        .ok_or(GenerationError::NoStart)?;
    let max_new_tokens = config.max_new_tokens.min(model.config().stack.length);
    Ok((
        Session::with_memory(model, memory),
        vec![start],
        max_new_tokens,
    ))
}
