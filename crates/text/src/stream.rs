//! Streamed decoding: takes ids one by one, and returns text as soon as it is final.

use tokenizers::DecoderWrapper;

use crate::byte_level::byte_of_symbol;
use crate::{TextError, Tokenizer};

/// Decodes ids one by one. The concatenated chunks equal [`Tokenizer::decode`] of all ids.
///
/// An incomplete UTF-8 character is held back, so U+FFFD only appears for ids that really form no character. The work per id
/// is constant.
#[derive(Debug)]
pub struct TextStream<'tokenizer> {
    tokenizer: &'tokenizer Tokenizer,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Byte-level tokens are bytes, so only an incomplete character (at most three bytes) is held back.
    Bytes { incomplete: Vec<u8> },
    /// Other decoders depend on neighbors (a space before all but the first word, for example). The ids of the last chunk
    /// are decoded together with the new ones, and their text is stripped.
    Window {
        context: Vec<u32>,
        pending: Vec<u32>,
        has_byte_fallback: bool,
    },
}

impl<'tokenizer> TextStream<'tokenizer> {
    /// An empty stream.
    pub fn new(tokenizer: &'tokenizer Tokenizer) -> Self {
        let state = match tokenizer.decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => State::Bytes {
                incomplete: Vec::new(),
            },
            decoder => State::Window {
                context: Vec::new(),
                pending: Vec::new(),
                has_byte_fallback: decoder.is_some_and(has_byte_fallback),
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
            State::Bytes { incomplete } => {
                incomplete.extend(token_bytes(&token));
                Ok(take_complete(incomplete))
            }
            State::Window {
                context,
                pending,
                has_byte_fallback,
            } => {
                pending.push(id);
                // A run of byte tokens is decoded as one: its text is only known when the run ends.
                if *has_byte_fallback && is_byte_token(&token) {
                    return Ok(String::new());
                }
                let text = decode_pending(self.tokenizer, context, pending)?;
                match text {
                    Some(text) if !text.is_empty() => {
                        *context = std::mem::take(pending);
                        Ok(text)
                    }
                    // Ids that decode to nothing are no context for the next ones.
                    _ => Ok(String::new()),
                }
            }
        }
    }

    /// The text still held back, with U+FFFD for an incomplete character.
    pub fn finish(self) -> String {
        match self.state {
            State::Bytes { incomplete } => String::from_utf8_lossy(&incomplete).into_owned(),
            // Every pending id was validated by `push`, so this cannot fail.
            State::Window {
                context, pending, ..
            } => decode_pending(self.tokenizer, &context, &pending)
                .ok()
                .flatten()
                .unwrap_or_default(),
        }
    }
}

/// The bytes of a byte-level token. As in the decoder, a token with any character outside the alphabet is plain text.
fn token_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of_symbol).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Drains all complete characters from the front of `bytes`.
fn take_complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut incomplete = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid();
        let at_end = std::ptr::eq(invalid.as_ptr_range().end, bytes.as_ptr_range().end);
        if at_end && is_incomplete(invalid) {
            incomplete = invalid.len();
        } else if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    bytes.drain(..bytes.len() - incomplete);
    text
}

/// Whether `bytes` are a truncated character rather than an invalid one.
fn is_incomplete(bytes: &[u8]) -> bool {
    // `None` means that the input ended too early.
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn decode_pending(
    tokenizer: &Tokenizer,
    context: &[u32],
    pending: &[u32],
) -> Result<Option<String>, TextError> {
    let before = tokenizer.decode(context)?;
    let after = tokenizer.decode(&[context, pending].concat())?;
    Ok(after.strip_prefix(&before).map(str::to_owned))
}

/// Whether the decoder fuses runs of `<0x..>` tokens into characters (byte fallback of SentencePiece).
fn has_byte_fallback(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteFallback(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(has_byte_fallback),
        _ => false,
    }
}

fn is_byte_token(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

#[cfg(test)]
mod tests;
