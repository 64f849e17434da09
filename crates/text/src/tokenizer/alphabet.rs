//! The characters that a BPE model without an unknown token can express. It silently drops all others, even from its
//! offsets, so the text itself must be checked.

use std::collections::HashSet;

use tokenizers::Tokenizer;
use tokenizers::models::bpe::BPE;

use crate::byte_level::byte_level_alphabet;

/// Which characters have a token.
#[derive(Clone, Debug)]
pub(super) enum Alphabet {
    /// Every character, possibly with an unknown token for the rest.
    Complete,
    /// Only these characters. Added tokens are matched first.
    Characters {
        known: HashSet<char>,
        added: Vec<String>,
    },
    /// Only characters whose bytes are all known.
    Bytes {
        known: Box<[bool; 256]>,
        added: Vec<String>,
    },
}

impl Alphabet {
    /// The alphabet of `tokenizer` with this model, whose symbols are bytes or characters.
    pub(super) fn of(tokenizer: &Tokenizer, model: &BPE, byte_level: bool) -> Self {
        // With `ignore_merges`, whole words may be tokens although their characters are not.
        if model.unk_token.is_some() || model.byte_fallback || model.ignore_merges {
            return Self::Complete;
        }
        let added = tokenizer
            .get_added_vocabulary()
            .get_vocab()
            .keys()
            .cloned()
            .collect();
        if byte_level {
            let known = byte_level_alphabet()
                .map(|symbol| tokenizer.token_to_id(&symbol.to_string()).is_some());
            if known == [true; 256] {
                return Self::Complete;
            }
            return Self::Bytes {
                known: Box::new(known),
                added,
            };
        }
        let single = |token: &String| {
            let mut characters = token.chars();
            characters.next().filter(|_| characters.next().is_none())
        };
        Self::Characters {
            known: model.get_vocab().keys().filter_map(single).collect(),
            added,
        }
    }

    /// The first character of `text` that has no token, and its byte offset.
    pub(super) fn first_unknown(&self, text: &str) -> Option<(usize, char)> {
        let mut buffer = [0; 4];
        match self {
            Self::Complete => None,
            Self::Characters { known, added } => {
                find_outside(text, added, |character| !known.contains(&character))
            }
            Self::Bytes { known, added } => find_outside(text, added, |character| {
                character
                    .encode_utf8(&mut buffer)
                    .bytes()
                    .any(|byte| !known[byte as usize])
            }),
        }
    }
}

/// The first character outside of `added` tokens for which `is_unknown` holds.
fn find_outside(
    text: &str,
    added: &[String],
    mut is_unknown: impl FnMut(char) -> bool,
) -> Option<(usize, char)> {
    let mut skip_to = 0;
    text.char_indices().find(|&(offset, character)| {
        if offset < skip_to || !is_unknown(character) {
            return false;
        }
        // The unknown character may be inside an added token, so look back by the length of one.
        let inside = added.iter().find_map(|token| {
            (skip_to..=offset)
                .rev()
                .take(token.len())
                .find(|&start| text.as_bytes()[start..].starts_with(token.as_bytes()))
                .map(|start| start + token.len())
        });
        match inside.filter(|end| *end > offset) {
            Some(end) => {
                skip_to = end;
                false
            }
            None => true,
        }
    })
}
