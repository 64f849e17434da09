//! Tokenizers that cut texts with one vocabulary and have the ids of another, as Marian's do: a piece's id is found by its text.

use crate::encoded::{Encoded, WhichText};
use crate::{TextError, Tokenizer};

/// The vocabulary with the ids, which also joins texts.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    inner: tokenizers::Tokenizer,
    unknown: String,
}

impl Writing {
    pub(super) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// The id of a piece; pieces without one are unknown.
    fn id(&self, piece: &str) -> u32 {
        let unknown = || self.inner.token_to_id(&self.unknown);
        let id = self.inner.token_to_id(piece).or_else(unknown);
        id.expect("the vocabulary has an unknown token")
    }

    /// A code in front of a text, such as `>>de<<`, which is one token, and the rest. Special tokens are found before it.
    fn code<'text>(&self, text: &'text str) -> (Option<&'text str>, &'text str) {
        let end = text.find("<<").filter(|_| text.starts_with(">>"));
        let Some((code, rest)) = end.and_then(|end| text.split_at_checked(end + 2)) else {
            return (None, text);
        };
        let added = self.inner.get_added_tokens_decoder();
        match added.values().any(|token| code.contains(&token.content)) {
            true => (None, text),
            false => (Some(code), rest),
        }
    }

    /// The ids of a text that `reading` cuts.
    pub(super) fn ids_of(
        &self,
        reading: &tokenizers::Tokenizer,
        text: &str,
        with_special: bool,
    ) -> Result<Vec<u32>, TextError> {
        let (code, rest) = self.code(text);
        // The fast call would leave out the texts of the pieces.
        let encoding = reading.encode(rest, with_special);
        let encoding = encoding.map_err(TextError::tokenizer)?;
        let pieces = encoding.get_tokens().iter().map(String::as_str);
        Ok(code
            .into_iter()
            .chain(pieces)
            .map(|it| self.id(it))
            .collect())
    }
}

impl Tokenizer {
    /// A tokenizer that cuts as `reading` does and has the ids of `writing`, in which `unknown` is a token.
    pub(crate) fn of_two(
        reading: tokenizers::Tokenizer,
        writing: tokenizers::Tokenizer,
        unknown: &str,
    ) -> Self {
        let ids = Self::wrap(writing);
        Self {
            writing: Some(Writing {
                inner: ids.inner,
                unknown: unknown.to_owned(),
            }),
            vocabulary: ids.vocabulary,
            end_of_text: ids.end_of_text,
            ..Self::wrap(reading)
        }
    }

    /// What of texts is cut, and what stands before each as a token of its own.
    pub(crate) fn without_codes<'text, const N: usize>(
        &self,
        texts: [&'text str; N],
    ) -> [(Option<&'text str>, &'text str); N] {
        match &self.writing {
            Some(writing) => texts.map(|text| writing.code(text)),
            None => texts.map(|text| (None, text)),
        }
    }

    /// Puts ids in place, and codes before their texts.
    pub(crate) fn with_codes(
        &self,
        encoded: Encoded,
        pieces: &[String],
        codes: &[Option<&str>],
    ) -> Encoded {
        let Some(writing) = &self.writing else {
            return encoded;
        };
        let mut whole = Encoded {
            ids: pieces.iter().map(|it| writing.id(it)).collect(),
            ..encoded
        };
        for (which, code) in [WhichText::First, WhichText::Second].into_iter().zip(codes) {
            let Some(code) = code else { continue };
            for (range, _) in (whole.offsets.iter_mut().zip(&whole.texts))
                .filter(|(_, text)| **text == Some(which))
            {
                *range = range.start + code.len()..range.end + code.len();
            }
            let place = match which {
                WhichText::First => 0,
                WhichText::Second => {
                    let of_first = |text: &&Option<WhichText>| **text == Some(WhichText::First);
                    whole.texts.iter().filter(of_first).count()
                }
            };
            whole.ids.insert(place, writing.id(code));
            whole.type_ids.insert(place, 0);
            whole.special_mask.insert(place, false);
            whole.offsets.insert(place, 0..code.len());
            whole.texts.insert(place, Some(which));
        }
        whole
    }
}
