//! Reports characters that the model would silently drop, and encodes long text in parallel chunks where that is exact.

use tokenizers::models::bpe::BPE;
use tokenizers::{ModelWrapper, PreTokenizerWrapper, Tokenizer};

use super::alphabet::Alphabet;
use super::guard::guarded;
use crate::TextError;
use crate::chunks::{CHUNK_BYTES, chunks};

/// Chunks per batch: enough for every thread, few enough to bound memory.
const BATCH_CHUNKS: usize = 64;

/// Properties of a tokenizer, determined once when it is built.
#[derive(Clone, Debug)]
pub(super) struct EncodingRules {
    alphabet: Alphabet,
    /// Whether text may be split by [`chunks`] with the same result.
    chunkable: bool,
}

/// An error, and the document it occurred in.
#[derive(Debug)]
pub struct DocumentError {
    /// The index of the document.
    pub document: usize,
    /// What is wrong with it.
    pub error: TextError,
}

impl EncodingRules {
    pub(super) fn of(tokenizer: &Tokenizer) -> Self {
        let rules = Self {
            alphabet: Alphabet::Complete,
            chunkable: false,
        };
        // Other models have unknown tokens, and normalizers may change text across a split.
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
                && (splits_as_gpt2 || has_no_merges(model)),
        }
    }

    /// Whether long text is split into chunks.
    #[cfg(test)]
    pub(super) fn chunks_text(&self) -> bool {
        self.chunkable
    }

    /// Encodes `documents` without special tokens, and passes the ids chunk by chunk, in order, with the index of the document.
    pub(super) fn encode_documents<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        documents: &[S],
        mut take: impl FnMut(usize, &[u32]),
    ) -> Result<(), DocumentError> {
        let min_bytes = if self.chunkable {
            CHUNK_BYTES
        } else {
            usize::MAX
        };
        let mut batch: Vec<Chunk> = Vec::with_capacity(BATCH_CHUNKS);
        let mut bytes = 0;
        for (document, text) in documents.iter().enumerate() {
            let mut start = 0;
            for text in chunks(text.as_ref(), min_bytes) {
                batch.push(Chunk {
                    document,
                    start,
                    text,
                });
                start += text.len();
                bytes += text.len();
                if bytes >= BATCH_CHUNKS * CHUNK_BYTES {
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
        batch: &[Chunk],
        take: &mut impl FnMut(usize, &[u32]),
    ) -> Result<(), DocumentError> {
        let texts: Vec<&str> = batch.iter().map(|chunk| chunk.text).collect();
        // The fast call skips offsets, which are not needed here.
        let encodings = guarded(|| tokenizer.encode_batch_fast(texts, false));
        let encodings = encodings.map_err(|error| DocumentError {
            document: batch.first().map_or(0, |chunk| chunk.document),
            error,
        })?;
        for (chunk, encoding) in batch.iter().zip(&encodings) {
            self.refuse_unknown(chunk.text, chunk.start)
                .map_err(|error| DocumentError {
                    document: chunk.document,
                    error,
                })?;
            take(chunk.document, encoding.get_ids());
        }
        Ok(())
    }

    /// An error if a character of `text`, which starts at byte `start` of its document, has no token.
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

/// A chunk and its origin.
struct Chunk<'text> {
    document: usize,
    start: usize,
    text: &'text str,
}

/// Whether the model has no merges, so that text can be split anywhere.
fn has_no_merges(model: &BPE) -> bool {
    // The merges are private, but serialized.
    let written = serde_json::to_value(model).ok();
    let merges = written
        .as_ref()
        .and_then(|model| model["merges"].as_array());
    merges.is_some_and(|merges| merges.is_empty()) && !model.ignore_merges
}

/// Whether no added token can span the start of a line: none contains a newline or strips whitespace to its right.
fn added_tokens_stay_whole(tokenizer: &Tokenizer) -> bool {
    tokenizer
        .get_added_tokens_decoder()
        .values()
        .all(|token| !token.rstrip && !token.content.contains('\n'))
}
