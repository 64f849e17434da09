//! The tokenizer, based on Hugging Face's `tokenizer.json` format.

mod alphabet;
mod encoding;
mod guard;
mod marian;
mod train;
mod validate;

use std::path::Path;

use serde::{Deserialize, Serialize};
use tokenizers::DecoderWrapper;

use crate::TextError;
use crate::folder::{SpecialTokens, TokenizerSettings};
pub use encoding::DocumentError;
use encoding::EncodingRules;
pub(crate) use guard::guarded;
pub use guard::panics_are_errors;
use marian::SharedVocabulary;

/// The special token between documents, as in GPT-2.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Which tokenizer to train.
// Struct variants, even the empty ones, so that serde refuses unknown keys in each of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TokenizerConfig {
    /// One id per distinct character of the corpus, in code point order; no special tokens.
    Characters {},
    /// One id per byte (id = byte value), and [`END_OF_TEXT`] as id 256.
    Bytes {},
    /// Byte-level byte pair encoding. Sennrich et al. 2016, Radford et al. 2019.
    Bpe {
        /// The vocabulary size: 256 bytes, [`END_OF_TEXT`] and merges. Smaller if the corpus has too few pairs that occur twice.
        vocabulary: usize,
    },
}

/// Turns text into ids and ids into text.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// Splits text into tokens; also has the ids unless there is a shared vocabulary.
    inner: tokenizers::Tokenizer,
    /// Ids and decoder of a Marian tokenizer.
    shared_vocabulary: Option<SharedVocabulary>,
    rules: EncodingRules,
    vocabulary: usize,
    end_of_text: Option<u32>,
    settings: TokenizerSettings,
}

impl Tokenizer {
    /// Trains a tokenizer on `documents`. The same documents give the same tokenizer, byte for byte.
    pub fn train(config: &TokenizerConfig, documents: &[String]) -> Result<Self, TextError> {
        train::train(config, documents).map(Self::wrap)
    }

    /// Reads a Hugging Face `tokenizer.json`.
    ///
    /// Truncation and padding of the file are disabled: sequence lengths are the caller's decision, and a corpus must never be
    /// silently truncated.
    pub fn load(path: &Path) -> Result<Self, TextError> {
        let broken = |cause: String| TextError::BrokenTokenizer {
            path: path.to_owned(),
            cause,
        };
        let bytes = crate::read_bytes(path).map_err(|error| match error {
            TextError::EmptyFile { .. } => broken("it is empty".to_owned()),
            TextError::Directory { .. } => broken("it is a directory".to_owned()),
            other => other,
        })?;
        validate::check(&bytes).map_err(broken)?;
        let mut inner = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|cause| {
            let unsupported = |problem| TextError::UnsupportedTokenizer {
                path: path.to_owned(),
                problem,
            };
            let problem = validate::unsupported(&bytes);
            problem.map_or_else(|| broken(cause.to_string()), unsupported)
        })?;
        inner
            .with_truncation(None)
            .map_err(|cause| broken(cause.to_string()))?;
        inner.with_padding(None);
        if inner.get_vocab_size(true) == 0 {
            return Err(broken("its vocabulary is empty".to_owned()));
        }
        Ok(Self::wrap(inner))
    }

    /// The whole tokenizer as a pretty-printed `tokenizer.json`, which Python's `tokenizers` loads too. Fails for
    /// Marian's, which no `tokenizer.json` can express.
    pub fn to_json(&self) -> Result<String, TextError> {
        if self.shared_vocabulary.is_some() {
            return Err(TextError::NoTokenizerJson);
        }
        let text = self.inner.to_string(true);
        Ok(text.expect("a tokenizer in memory can always be written as JSON"))
    }

    /// Encodes `text`, with the special tokens of the post-processor.
    ///
    /// Special tokens written in the text, such as [`END_OF_TEXT`], become their ids, which [`Tokenizer::decode`] skips.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.encode_ids(text, true)
    }

    /// Encodes `text` without adding special tokens, as for rendered chat templates, which contain theirs.
    pub fn encode_without_special(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.encode_ids(text, false)
    }

    fn encode_ids(&self, text: &str, with_special: bool) -> Result<Vec<u32>, TextError> {
        self.rules.refuse_unknown(text, 0)?;
        if let Some(shared_vocabulary) = &self.shared_vocabulary {
            return shared_vocabulary.encode(&self.inner, text, with_special);
        }
        let encoding = guarded(|| self.inner.encode_fast(text, with_special))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes documents without special tokens; an error has the index of the document. Long text is encoded in parallel.
    pub fn encode_documents<S: AsRef<str>>(
        &self,
        documents: &[S],
    ) -> Result<Vec<Vec<u32>>, DocumentError> {
        if self.shared_vocabulary.is_some() {
            let ids = |(document, text): (usize, &S)| {
                let failed = |error| DocumentError { document, error };
                self.encode_without_special(text.as_ref()).map_err(failed)
            };
            return documents.iter().enumerate().map(ids).collect();
        }
        let mut ids = vec![Vec::new(); documents.len()];
        self.rules
            .encode_documents(&self.inner, documents, |document, chunk| {
                ids[document].extend_from_slice(chunk);
            })?;
        Ok(ids)
    }

    /// Decodes ids. Special tokens are skipped; invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        self.decode_ids(ids, true)
    }

    /// [`Tokenizer::decode`] with special tokens, as they are written in the vocabulary (`skip_special_tokens=False`).
    pub fn decode_with_special(&self, ids: &[u32]) -> Result<String, TextError> {
        self.decode_ids(ids, false)
    }

    /// [`Tokenizer::decode`] with one special token: all others are skipped.
    pub fn decode_keeping(&self, ids: &[u32], kept: u32) -> Result<String, TextError> {
        let mut shown = Vec::with_capacity(ids.len());
        for id in ids {
            if *id == kept || !self.is_special(&self.token(*id)?) {
                shown.push(*id);
            }
        }
        self.decode_with_special(&shown)
    }

    fn decode_ids(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        ids.iter().try_for_each(|&id| self.token(id).map(drop))?;
        let joined = guarded(|| self.decoding_tokenizer().decode(ids, skip_special))?;
        Ok(match self.shared_vocabulary {
            Some(_) => joined.trim().to_owned(),
            None => joined,
        })
    }

    /// The number of embeddings that the ids need: the largest id plus one.
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
        self.decoding_tokenizer().id_to_token(id).ok_or(unknown)
    }

    /// Whether decoding skips this token.
    pub(crate) fn is_special(&self, token: &str) -> bool {
        let added = self.decoding_tokenizer().get_added_vocabulary();
        added.is_special_token(token)
    }

    /// The decoder.
    pub(crate) fn decoder(&self) -> Option<&DecoderWrapper> {
        self.decoding_tokenizer().get_decoder()
    }

    /// The special tokens by role, as configured in the folder. Empty for a tokenizer that was trained here or read from a
    /// single file.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.settings.special
    }

    /// The id of a token as written in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.decoding_tokenizer().token_to_id(token)
    }

    /// The settings of the folder.
    pub(crate) fn settings(&self) -> &TokenizerSettings {
        &self.settings
    }

    pub(crate) fn set_settings(&mut self, settings: TokenizerSettings) {
        self.settings = settings;
    }

    /// The tokenizer that splits text.
    pub(crate) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// The tokenizer with the ids and the decoder.
    fn decoding_tokenizer(&self) -> &tokenizers::Tokenizer {
        self.shared_vocabulary
            .as_ref()
            .map_or(&self.inner, SharedVocabulary::inner)
    }

    /// An error if a character of `text` has no token.
    pub(crate) fn refuse_unknown(&self, text: &str) -> Result<(), TextError> {
        self.rules.refuse_unknown(text, 0)
    }

    pub(crate) fn wrap(inner: tokenizers::Tokenizer) -> Self {
        let largest = inner.get_vocab(true).into_values().max();
        Self {
            rules: EncodingRules::of(&inner),
            vocabulary: largest.map_or(0, |id| id as usize + 1),
            end_of_text: inner.token_to_id(END_OF_TEXT),
            settings: TokenizerSettings::default(),
            shared_vocabulary: None,
            inner,
        }
    }
}

#[cfg(test)]
mod tests;
