//! The tokenizer: text to ids and back, over the standard `tokenizer.json` format of Hugging Face.

mod alphabet;
mod encoding;
mod survivable;
mod train;
mod two;

use std::path::Path;

use serde::{Deserialize, Serialize};
use tokenizers::DecoderWrapper;

use crate::TextError;
use crate::folder::{FolderFacts, SpecialTokens};
use encoding::EncodingRules;
use two::Writing;

/// The special token that stands between documents, as in GPT-2.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Which tokenizer to train.
// Struct variants, even the empty ones, so that serde refuses unknown keys in each of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TokenizerConfig {
    /// One id per distinct character of the corpus, in the order of their code points; no special tokens.
    Characters {},
    /// One id per byte (id = byte value), and [`END_OF_TEXT`] as id 256.
    Bytes {},
    /// Byte-level byte pair encoding. Sennrich et al. 2016, Radford et al. 2019.
    Bpe {
        /// Ids in all: 256 bytes, [`END_OF_TEXT`] and merges. Fewer are learned when the corpus has no more pairs
        /// that occur twice.
        vocabulary: usize,
    },
}

/// Turns text into ids and ids into text.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// Cuts texts, and joins them where nothing else does.
    inner: tokenizers::Tokenizer,
    /// Has the ids and joins texts, where that is another's affair.
    writing: Option<Writing>,
    rules: EncodingRules,
    vocabulary: usize,
    end_of_text: Option<u32>,
    facts: FolderFacts,
}

impl Tokenizer {
    /// Trains a tokenizer on `documents`. The same documents give the same tokenizer, byte for byte.
    pub fn train(config: &TokenizerConfig, documents: &[String]) -> Result<Self, TextError> {
        train::train(config, documents).map(Self::wrap)
    }

    /// Reads a Hugging Face `tokenizer.json`.
    ///
    /// Truncation and padding that the file asks for are switched off: how long sequences are is the caller's
    /// decision, and a corpus must never be cut short without a word.
    pub fn load(path: &Path) -> Result<Self, TextError> {
        let broken = |cause: String| TextError::BrokenTokenizer {
            path: path.to_owned(),
            cause,
        };
        let bytes = crate::corpus::read_bytes(path).map_err(|error| match error {
            TextError::EmptyFile { .. } => broken("it is empty".to_owned()),
            TextError::Directory { .. } => broken("it is a directory".to_owned()),
            other => other,
        })?;
        survivable::check(&bytes).map_err(broken)?;
        let mut inner =
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|cause| broken(cause.to_string()))?;
        inner
            .with_truncation(None)
            .map_err(|cause| broken(cause.to_string()))?;
        inner.with_padding(None);
        if inner.get_vocab_size(true) == 0 {
            return Err(broken("its vocabulary is empty".to_owned()));
        }
        Ok(Self::wrap(inner))
    }

    /// The whole tokenizer as a pretty-printed `tokenizer.json`, which Python's `tokenizers` loads too. Marian's is
    /// refused: no `tokenizer.json` can express it.
    pub fn to_json(&self) -> Result<String, TextError> {
        if self.writing.is_some() {
            return Err(TextError::NoTokenizerJson);
        }
        let text = self.inner.to_string(true);
        Ok(text.expect("a tokenizer in memory can always be written as JSON"))
    }

    /// The ids of `text`, with the special tokens that the tokenizer's own post-processor adds.
    ///
    /// The text of a special token, such as [`END_OF_TEXT`], becomes that token's id; [`Tokenizer::decode`] then
    /// leaves it out.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.ids_of(text, true)
    }

    /// The ids of `text` alone. For texts that have their special tokens in them already, as chat templates give them.
    pub fn encode_bare(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.ids_of(text, false)
    }

    fn ids_of(&self, text: &str, with_special: bool) -> Result<Vec<u32>, TextError> {
        self.rules.refuse_unknown(text, 0)?;
        if let Some(writing) = &self.writing {
            return writing.ids_of(&self.inner, text, with_special);
        }
        let encoding = self
            .inner
            .encode_fast(text, with_special)
            .map_err(TextError::tokenizer)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The ids of each document, without added special tokens; an error comes with the document's index. Long text is
    /// encoded in parallel.
    pub(crate) fn encode_documents<S: AsRef<str>>(
        &self,
        documents: &[S],
    ) -> Result<Vec<Vec<u32>>, encoding::DocumentError> {
        if self.writing.is_some() {
            let ids = |(document, text): (usize, &S)| {
                let failed = |error| encoding::DocumentError { document, error };
                self.encode_bare(text.as_ref()).map_err(failed)
            };
            return documents.iter().enumerate().map(ids).collect();
        }
        let mut ids = vec![Vec::new(); documents.len()];
        self.rules
            .encode_documents(&self.inner, documents, |document, piece| {
                ids[document].extend_from_slice(piece);
            })?;
        Ok(ids)
    }

    /// The text of `ids`. Special tokens are left out; bytes that form no character become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        ids.iter().try_for_each(|&id| self.token(id).map(drop))?;
        let joined = self.joining().decode(ids, true);
        let joined = joined.map_err(TextError::tokenizer)?;
        Ok(match self.writing {
            Some(_) => joined.trim().to_owned(),
            None => joined,
        })
    }

    /// Size of the table of embeddings that the ids need: the largest id plus one.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The id of [`END_OF_TEXT`], if the vocabulary has it.
    pub fn end_of_text(&self) -> Option<u32> {
        self.end_of_text
    }

    /// The token as written in the vocabulary.
    pub fn token(&self, id: u32) -> Result<String, TextError> {
        let unknown = TextError::UnknownId {
            id,
            vocabulary: self.vocabulary,
        };
        self.joining().id_to_token(id).ok_or(unknown)
    }

    /// Whether decoding leaves this token out.
    pub(crate) fn is_special(&self, token: &str) -> bool {
        let added = self.joining().get_added_vocabulary();
        added.is_special_token(token)
    }

    /// The decoder, which says how tokens join into text.
    pub(crate) fn decoder(&self) -> Option<&DecoderWrapper> {
        self.joining().get_decoder()
    }

    /// The special tokens by role, as the files of the folder name them. A tokenizer that was trained here or read from a
    /// single file knows none of its roles.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.facts.special
    }

    /// The id of a token as written in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.joining().token_to_id(token)
    }

    /// What the tokenizer's folder says besides.
    pub(crate) fn facts(&self) -> &FolderFacts {
        &self.facts
    }

    pub(crate) fn set_facts(&mut self, facts: FolderFacts) {
        self.facts = facts;
    }

    /// What cuts texts.
    pub(crate) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// What gives a token its id and joins them into text.
    fn joining(&self) -> &tokenizers::Tokenizer {
        self.writing.as_ref().map_or(&self.inner, Writing::inner)
    }

    /// An error if a character of `text` would get no token.
    pub(crate) fn refuse_unknown(&self, text: &str) -> Result<(), TextError> {
        self.rules.refuse_unknown(text, 0)
    }

    pub(crate) fn wrap(inner: tokenizers::Tokenizer) -> Self {
        let largest = inner.get_vocab(true).into_values().max();
        Self {
            rules: EncodingRules::of(&inner),
            vocabulary: largest.map_or(0, |id| id as usize + 1),
            end_of_text: inner.token_to_id(END_OF_TEXT),
            facts: FolderFacts::default(),
            writing: None,
            inner,
        }
    }
}

#[cfg(test)]
mod tests;
