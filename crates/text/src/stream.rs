//! Streamed decoding: ids go in one by one, text comes out as soon as it is final.

use tokenizers::DecoderWrapper;

use crate::byte_symbols::symbol_byte;
use crate::{TextError, Tokenizer};

/// Decodes ids one by one. The pieces, joined, equal [`Tokenizer::decode`] of all ids.
///
/// A character whose bytes are not all there is held back, so U+FFFD appears only where the ids really form no
/// character. The work per id does not grow with the number of ids.
#[derive(Debug)]
pub struct TextStream<'tokenizer> {
    tokenizer: &'tokenizer Tokenizer,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Byte-level tokens are bytes, so only an unfinished character (at most three bytes) is held back.
    Bytes { unfinished: Vec<u8> },
    /// Other decoders look at neighbours (a space before all but the first word, for example). The ids of the last
    /// piece are decoded again before the new ones, and what they gave is cut off.
    Window {
        context: Vec<u32>,
        pending: Vec<u32>,
        joins_bytes: bool,
    },
}

impl<'tokenizer> TextStream<'tokenizer> {
    /// A stream that has seen no id.
    pub fn new(tokenizer: &'tokenizer Tokenizer) -> Self {
        let state = match tokenizer.decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => State::Bytes {
                unfinished: Vec::new(),
            },
            decoder => State::Window {
                context: Vec::new(),
                pending: Vec::new(),
                joins_bytes: decoder.is_some_and(joins_bytes),
            },
        };
        Self { tokenizer, state }
    }

    /// Takes the next id and returns the text that became final, which may be empty.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        let token = self.tokenizer.token(id)?;
        if self.tokenizer.is_special(&token) {
            return Ok(String::new());
        }
        match &mut self.state {
            State::Bytes { unfinished } => {
                unfinished.extend(token_bytes(&token));
                Ok(take_final(unfinished))
            }
            State::Window {
                context,
                pending,
                joins_bytes,
            } => {
                pending.push(id);
                // A run of byte tokens is decoded as one: its text is only known when the run ends.
                if *joins_bytes && is_byte_token(&token) {
                    return Ok(String::new());
                }
                let piece = new_text(self.tokenizer, context, pending)?;
                match piece {
                    Some(piece) if !piece.is_empty() => {
                        *context = std::mem::take(pending);
                        Ok(piece)
                    }
                    // An empty piece would make a context that says nothing about its neighbours.
                    _ => Ok(String::new()),
                }
            }
        }
    }

    /// The text still held back, with U+FFFD for a character that never became whole.
    pub fn finish(self) -> String {
        match self.state {
            State::Bytes { unfinished } => String::from_utf8_lossy(&unfinished).into_owned(),
            // Every pending id was decoded or checked when it was pushed, so an error here cannot be.
            State::Window {
                context, pending, ..
            } => new_text(self.tokenizer, &context, &pending)
                .ok()
                .flatten()
                .unwrap_or_default(),
        }
    }
}

/// The bytes of a byte-level token. As in the decoder, a token with any other character is plain text.
fn token_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(symbol_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Takes all but an unfinished character off the front of `bytes`.
fn take_final(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut unfinished = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid();
        let at_end = std::ptr::eq(invalid.as_ptr_range().end, bytes.as_ptr_range().end);
        if at_end && may_continue(invalid) {
            unfinished = invalid.len();
        } else if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    bytes.drain(..bytes.len() - unfinished);
    text
}

/// Whether `bytes` are the beginning of a character, rather than a mistake.
fn may_continue(bytes: &[u8]) -> bool {
    // The standard library tells the two apart: `None` means that the input ended too early.
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn new_text(
    tokenizer: &Tokenizer,
    context: &[u32],
    pending: &[u32],
) -> Result<Option<String>, TextError> {
    let before = tokenizer.decode(context)?;
    let after = tokenizer.decode(&[context, pending].concat())?;
    Ok(after.strip_prefix(&before).map(str::to_owned))
}

/// Whether the decoder turns runs of `<0x..>` tokens into characters, as SentencePiece models need.
fn joins_bytes(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteFallback(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(joins_bytes),
        _ => false,
    }
}

fn is_byte_token(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

#[cfg(test)]
mod tests;
