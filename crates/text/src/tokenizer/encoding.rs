//! Encoding without silence and without waiting: notices characters that the model drops, and encodes long text
//! in chunks where that changes nothing.

use tokenizers::models::bpe::BPE;
use tokenizers::{ModelWrapper, PreTokenizerWrapper, Tokenizer};

use super::alphabet::Alphabet;
use crate::TextError;
use crate::chunks::{CHUNK_BYTES, chunks};

/// Chunks that are encoded at once: enough for every thread, few enough to bound the memory.
const CHUNKS_AT_ONCE: usize = 64;

/// What may be done with a tokenizer's encodings, found once when it is built.
#[derive(Clone, Debug)]
pub(super) struct EncodingRules {
    alphabet: Alphabet,
    /// Whether text may be cut by [`chunks`] with the same result.
    chunkable: bool,
}

/// An error, and in which document it was found.
#[derive(Debug)]
pub(crate) struct DocumentError {
    pub(crate) document: usize,
    pub(crate) error: TextError,
}

impl EncodingRules {
    pub(super) fn of(tokenizer: &Tokenizer) -> Self {
        let rules = Self {
            alphabet: Alphabet::Complete,
            chunkable: false,
        };
        // Other models have an unknown token of their own, and normalizers may change text across a cut.
        let ModelWrapper::BPE(model) = tokenizer.get_model() else {
            return rules;
        };
        let plain = model.continuing_subword_prefix.is_none() && model.end_of_word_suffix.is_none();
        if tokenizer.get_normalizer().is_some() || !plain {
            return rules;
        }
        let bytes = match tokenizer.get_pre_tokenizer() {
            None => None,
            Some(PreTokenizerWrapper::ByteLevel(level)) if !level.add_prefix_space => Some(level),
            Some(_) => return rules,
        };
        let splits_as_gpt2 = bytes.is_some_and(|level| level.use_regex);
        Self {
            alphabet: Alphabet::of(tokenizer, model, bytes.is_some()),
            chunkable: added_tokens_stay_whole(tokenizer)
                && (splits_as_gpt2 || joins_nothing(model)),
        }
    }

    /// Whether long text is cut into chunks.
    #[cfg(test)]
    pub(super) fn chunks_text(&self) -> bool {
        self.chunkable
    }

    /// Encodes `documents` without special tokens and hands out the ids piece by piece, in order, each with the
    /// index of its document.
    pub(super) fn encode_documents<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        documents: &[S],
        mut take: impl FnMut(usize, &[u32]),
    ) -> Result<(), DocumentError> {
        let least = if self.chunkable {
            CHUNK_BYTES
        } else {
            usize::MAX
        };
        let mut batch: Vec<Piece> = Vec::with_capacity(CHUNKS_AT_ONCE);
        let mut bytes = 0;
        for (document, text) in documents.iter().enumerate() {
            let mut start = 0;
            for text in chunks(text.as_ref(), least) {
                batch.push(Piece {
                    document,
                    start,
                    text,
                });
                start += text.len();
                bytes += text.len();
                if bytes >= CHUNKS_AT_ONCE * CHUNK_BYTES {
                    self.encode_batch(tokenizer, &batch, &mut take)?;
                    batch.clear();
                    bytes = 0;
                }
            }
        }
        self.encode_batch(tokenizer, &batch, &mut take)
    }

    fn encode_batch(
        &self,
        tokenizer: &Tokenizer,
        batch: &[Piece],
        take: &mut impl FnMut(usize, &[u32]),
    ) -> Result<(), DocumentError> {
        let texts: Vec<&str> = batch.iter().map(|piece| piece.text).collect();
        // The fast call leaves out offsets, which nobody needs here.
        let encodings =
            tokenizer
                .encode_batch_fast(texts, false)
                .map_err(|cause| DocumentError {
                    document: batch.first().map_or(0, |piece| piece.document),
                    error: TextError::tokenizer(cause),
                })?;
        for (piece, encoding) in batch.iter().zip(&encodings) {
            self.refuse_unknown(piece.text, piece.start)
                .map_err(|error| DocumentError {
                    document: piece.document,
                    error,
                })?;
            take(piece.document, encoding.get_ids());
        }
        Ok(())
    }

    /// An error if a character of `text`, which stands at byte `start` of its document, would get no token.
    pub(super) fn refuse_unknown(&self, text: &str, start: usize) -> Result<(), TextError> {
        match self.alphabet.first_unknown(text) {
            None => Ok(()),
            Some((offset, character)) => Err(TextError::UnknownCharacter {
                character,
                offset: start + offset,
                text: "the text".to_owned(),
            }),
        }
    }
}

/// A chunk and where it comes from.
struct Piece<'text> {
    document: usize,
    start: usize,
    text: &'text str,
}

/// Whether the model has no merges, so that every symbol stands alone wherever the text is cut.
fn joins_nothing(model: &BPE) -> bool {
    // The merges are private, but they are written out.
    let written = serde_json::to_value(model).ok();
    let merges = written
        .as_ref()
        .and_then(|model| model["merges"].as_array());
    merges.is_some_and(|merges| merges.is_empty()) && !model.ignore_merges
}

/// Whether no added token can reach over the start of a line: none holds a newline or takes in the whitespace after it.
fn added_tokens_stay_whole(tokenizer: &Tokenizer) -> bool {
    tokenizer
        .get_added_tokens_decoder()
        .values()
        .all(|token| !token.rstrip && !token.content.contains('\n'))
}
