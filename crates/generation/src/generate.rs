//! The decoding loop: read, choose, stream, until something says stop.

use std::ops::ControlFlow;

use attentive_model::Model;
use attentive_text::{TextStream, Tokenizer};

use crate::check::padding;
use crate::rules::Place;
use crate::{GenerationError, Rules, Sampling, Session, StopStrings, check, encode};

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    /// The most tokens to make.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Strings that end the text; they are not part of it.
    pub stop: Vec<String>,
    /// What the model's files ask of every text.
    pub rules: Rules,
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
    /// As many tokens as were asked for, or as the model can make.
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

/// Continues `prompt`, handing each piece to `show` as it comes, which may end the text by breaking. A model with an encoder
/// reads the prompt there and writes a text of its own.
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
    let (mut session, mut unread, most) = begin(model, prompt, config)?;
    let mut stream = tokenizer.map(TextStream::new);
    let mut stops = StopStrings::new(&config.stop);
    let mut generated = Generated {
        ids: Vec::new(),
        text: String::new(),
        reason: StopReason::Length,
    };
    while generated.ids.len() < most {
        let mut logits = session.read(&unread);
        // A model may have spare entries at the end of its vocabulary, which stand for no text.
        logits[possible..].fill(f32::NEG_INFINITY);
        let place = Place {
            source: prompt,
            seen: session.ids(),
            made: generated.ids.len(),
            most,
        };
        config.rules.apply(&mut logits, place);
        if logits.iter().all(|score| *score == f32::NEG_INFINITY) {
            return Err(GenerationError::NothingAllowed);
        }
        let id = config.sampling.choose(logits, session.ids().len())?;
        if config.rules.end.contains(&id) {
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

/// A session, the tokens to read first, and the most tokens that can be made.
fn begin<'m>(
    model: &'m Model,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<(Session<'m>, Vec<u32>, usize), GenerationError> {
    if model.config().encoder.is_none() {
        return Ok((Session::new(model), prompt.to_vec(), config.max_tokens));
    }
    let memory = encode(model, &[prompt.to_vec()], padding(model, &config.rules));
    let start = config.rules.start.ok_or(GenerationError::NoStart)?;
    let most = config.max_tokens.min(model.config().length);
    Ok((Session::over(model, memory), vec![start], most))
}
