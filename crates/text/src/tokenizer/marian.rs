//! Marian's tokenizers, which split with a SentencePiece model and take ids from a shared vocabulary, by the text of a piece.

use crate::encoded::{Encoded, SequenceId};
use crate::{TextError, Tokenizer};

/// The shared vocabulary of both languages, and the decoder.
#[derive(Clone, Debug)]
pub(super) struct SharedVocabulary {
    inner: tokenizers::Tokenizer,
    unknown: String,
}

impl SharedVocabulary {
    pub(super) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// The id of a piece, or that of the unknown token.
    fn id(&self, piece: &str) -> u32 {
        let unknown = || self.inner.token_to_id(&self.unknown);
        let id = self.inner.token_to_id(piece).or_else(unknown);
        id.expect("the vocabulary has an unknown token")
    }

    /// Splits off a leading language code such as `>>de<<`, which is one token. Special tokens take precedence.
    fn language_code<'text>(&self, text: &'text str) -> (Option<&'text str>, &'text str) {
        let end = text.find("<<").filter(|_| text.starts_with(">>"));
        let Some((language_code, rest)) = end.and_then(|end| text.split_at_checked(end + 2)) else {
            return (None, text);
        };
        let added = self.inner.get_added_tokens_decoder();
        match added
            .values()
            .any(|token| language_code.contains(&token.content))
        {
            true => (None, text),
            false => (Some(language_code), rest),
        }
    }

    /// Encodes a text that `segmenter` splits.
    pub(super) fn encode(
        &self,
        segmenter: &tokenizers::Tokenizer,
        text: &str,
        with_special: bool,
    ) -> Result<Vec<u32>, TextError> {
        let (language_code, rest) = self.language_code(text);
        // The fast call would skip the texts of the pieces.
        let encoding = segmenter.encode(rest, with_special);
        let encoding = encoding.map_err(TextError::tokenizer)?;
        let pieces = encoding.get_tokens().iter().map(String::as_str);
        Ok(language_code
            .into_iter()
            .chain(pieces)
            .map(|it| self.id(it))
            .collect())
    }
}

impl Tokenizer {
    /// A tokenizer that splits with `segmenter` and has the ids of `shared_vocabulary`, which contains the token `unknown`.
    pub(crate) fn with_shared_vocabulary(
        segmenter: tokenizers::Tokenizer,
        shared_vocabulary: tokenizers::Tokenizer,
        unknown: &str,
    ) -> Self {
        let ids = Self::wrap(shared_vocabulary);
        Self {
            shared_vocabulary: Some(SharedVocabulary {
                inner: ids.inner,
                unknown: unknown.to_owned(),
            }),
            vocabulary: ids.vocabulary,
            end_of_text: ids.end_of_text,
            ..Self::wrap(segmenter)
        }
    }

    /// Splits off the language code of each text.
    pub(crate) fn split_language_codes<'text, const N: usize>(
        &self,
        texts: [&'text str; N],
    ) -> [(Option<&'text str>, &'text str); N] {
        match &self.shared_vocabulary {
            Some(shared_vocabulary) => texts.map(|text| shared_vocabulary.language_code(text)),
            None => texts.map(|text| (None, text)),
        }
    }

    /// Replaces ids with those of the shared vocabulary, and prepends language codes to their texts.
    pub(crate) fn with_language_codes(
        &self,
        encoded: Encoded,
        pieces: &[String],
        language_codes: &[Option<&str>],
    ) -> Encoded {
        let Some(shared_vocabulary) = &self.shared_vocabulary else {
            return encoded;
        };
        let mut result = Encoded {
            ids: pieces.iter().map(|it| shared_vocabulary.id(it)).collect(),
            ..encoded
        };
        for (sequence, language_code) in [SequenceId::First, SequenceId::Second]
            .into_iter()
            .zip(language_codes)
        {
            let Some(language_code) = language_code else {
                continue;
            };
            for (range, _) in (result.offsets.iter_mut().zip(&result.sequence_ids))
                .filter(|(_, text)| **text == Some(sequence))
            {
                *range = range.start + language_code.len()..range.end + language_code.len();
            }
            let index = match sequence {
                SequenceId::First => 0,
                SequenceId::Second => {
                    let of_first = |text: &&Option<SequenceId>| **text == Some(SequenceId::First);
                    result.sequence_ids.iter().filter(of_first).count()
                }
            };
            result
                .ids
                .insert(index, shared_vocabulary.id(language_code));
            result.type_ids.insert(index, 0);
            result.special_tokens_mask.insert(index, false);
            result.offsets.insert(index, 0..language_code.len());
            result.sequence_ids.insert(index, Some(sequence));
        }
        result
    }
}
