//! Texts and pairs of texts as a model takes them: with special tokens, type ids and, if asked for, cut to a length.

use std::ops::Range;

use tokenizers::Encoding;

use crate::padding::Side;
use crate::{TextError, Tokenizer};

/// One text, or two, as ids with all that belongs to each id. All lists have the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// The ids.
    pub ids: Vec<u32>,
    /// Which part of the input an id belongs to, as the model was trained (`token_type_ids`).
    pub type_ids: Vec<u32>,
    /// Whether the tokenizer added the token. A special token that stands in the text itself does not count.
    pub special_mask: Vec<bool>,
    /// Where the token stands in its text, in bytes; empty for added tokens.
    pub offsets: Vec<Range<usize>>,
    /// Which text the token is from, if any.
    pub texts: Vec<Option<WhichText>>,
}

/// The first or the second text of a pair; a text alone is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichText {
    /// The first, or the only one.
    First,
    /// The second.
    Second,
}

/// To how many ids a text or a pair is cut, special tokens included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// The most ids.
    pub length: usize,
    /// Where ids are taken away.
    pub strategy: TruncationStrategy,
}

/// Which text of a pair gets shorter. From which end is the folder's `truncation_side`, the right if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationStrategy {
    /// The longer one, until both are equally long; then both.
    LongestFirst,
    /// Only the first.
    OnlyFirst,
    /// Only the second.
    OnlySecond,
}

impl Tokenizer {
    /// One text with the special tokens around it, cut if `truncation` says so.
    pub fn encode_text(
        &self,
        text: &str,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TextError> {
        self.refuse_unknown(text)?;
        let [(code, text)] = self.without_codes([text]);
        let encoding = self
            .inner()
            .encode_char_offsets(text, true)
            .map_err(TextError::tokenizer)?;
        let encoded = Encoded::of(&encoding, [text, ""]);
        let encoded = self.with_codes(encoded, encoding.get_tokens(), &[code]);
        self.finish(encoded, false, truncation)
    }

    /// Two texts with the special tokens around and between them, cut if `truncation` says so.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TextError> {
        self.refuse_unknown(first)?;
        self.refuse_unknown(second)?;
        let [(one, first), (two, second)] = self.without_codes([first, second]);
        let encoding = self
            .inner()
            .encode_char_offsets((first, second), true)
            .map_err(TextError::tokenizer)?;
        let encoded = Encoded::of(&encoding, [first, second]);
        let encoded = self.with_codes(encoded, encoding.get_tokens(), &[one, two]);
        self.finish(encoded, true, truncation)
    }

    fn finish(
        &self,
        encoded: Encoded,
        pair: bool,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TextError> {
        match truncation {
            None => Ok(encoded),
            Some(truncation) => {
                encoded.truncated(pair, truncation, self.facts().padding.truncation_side)
            }
        }
    }
}

impl Encoded {
    /// From an encoding with offsets in characters. Those in bytes may fall inside a character, as trimming a space takes
    /// one off.
    fn of(encoding: &Encoding, texts: [&str; 2]) -> Self {
        let starts = texts.map(|text| {
            let starts = text.char_indices().map(|(start, _)| start);
            starts.chain([text.len()]).collect::<Vec<usize>>()
        });
        let added = encoding
            .get_special_tokens_mask()
            .iter()
            .map(|mask| *mask == 1);
        let which = |sequence: Option<usize>| match sequence {
            Some(0) => Some(WhichText::First),
            Some(_) => Some(WhichText::Second),
            None => None,
        };
        let sequences = encoding.get_sequence_ids().into_iter().zip(added.clone());
        let texts: Vec<Option<WhichText>> = sequences
            .map(|(sequence, added)| which(sequence).filter(|_| !added))
            .collect();
        let offset = |((start, end), text): (&(usize, usize), &Option<WhichText>)| match text {
            None => 0..0,
            Some(text) => {
                let starts = &starts[*text as usize];
                let byte = |character: usize| {
                    starts
                        .get(character)
                        .or(starts.last())
                        .copied()
                        .unwrap_or(0)
                };
                byte(*start)..byte(*end)
            }
        };
        Self {
            ids: encoding.get_ids().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
            offsets: encoding
                .get_offsets()
                .iter()
                .zip(&texts)
                .map(offset)
                .collect(),
            texts,
            special_mask: added.collect(),
        }
    }

    /// Takes tokens of the texts away. The added tokens do not depend on how long the texts are, so this equals cutting the
    /// texts first, as Hugging Face does.
    fn truncated(self, pair: bool, truncation: Truncation, side: Side) -> Result<Self, TextError> {
        let count = |text: WhichText| {
            self.texts
                .iter()
                .filter(|which| **which == Some(text))
                .count()
        };
        let (first, second) = (count(WhichText::First), count(WhichText::Second));
        let added = self.ids.len() - first - second;
        let Some(room) = truncation.length.checked_sub(added) else {
            return Err(TextError::NoRoom {
                length: truncation.length,
                added,
            });
        };
        if first + second <= room && (pair || truncation.strategy != TruncationStrategy::OnlySecond)
        {
            return Ok(self);
        }
        let kept = kept_lengths(first, second, pair, room, truncation)?;
        Ok(self.keep(&kept, [first, second], side))
    }

    /// Keeps this many tokens of each text.
    fn keep(self, kept: &[usize; 2], lengths: [usize; 2], side: Side) -> Self {
        let mut seen = [0, 0];
        let stays: Vec<bool> = self
            .texts
            .iter()
            .map(|text| {
                let Some(text) = text else { return true };
                let text = *text as usize;
                seen[text] += 1;
                match side {
                    Side::Right => seen[text] <= kept[text],
                    Side::Left => seen[text] > lengths[text] - kept[text],
                }
            })
            .collect();
        fn only<T>(list: Vec<T>, stays: &[bool]) -> Vec<T> {
            list.into_iter()
                .zip(stays)
                .filter_map(|(item, stays)| stays.then_some(item))
                .collect()
        }
        Self {
            ids: only(self.ids, &stays),
            type_ids: only(self.type_ids, &stays),
            special_mask: only(self.special_mask, &stays),
            offsets: only(self.offsets, &stays),
            texts: only(self.texts, &stays),
        }
    }
}

/// How many tokens stay of texts with `first` and `second` tokens when both must fit into `room`.
fn kept_lengths(
    first: usize,
    second: usize,
    pair: bool,
    room: usize,
    truncation: Truncation,
) -> Result<[usize; 2], TextError> {
    let impossible = |text: &'static str| TextError::CannotTruncate {
        length: truncation.length,
        text,
    };
    let too_many = (first + second).saturating_sub(room);
    match truncation.strategy {
        TruncationStrategy::OnlySecond if !pair => Err(impossible("second")),
        _ if room == 0 => Ok([0, 0]),
        TruncationStrategy::OnlyFirst if first > too_many => Ok([first - too_many, second]),
        TruncationStrategy::OnlyFirst => Err(impossible("first")),
        TruncationStrategy::OnlySecond if second > too_many => Ok([first, second - too_many]),
        TruncationStrategy::OnlySecond => Err(impossible("second")),
        TruncationStrategy::LongestFirst if !pair => Ok([room, 0]),
        TruncationStrategy::LongestFirst => {
            let shorter = first.min(second);
            // The longer one alone if that is enough; else both, the one that was longer keeping the odd token.
            let (shorter, longer) = if shorter <= room / 2 {
                (shorter, room - shorter)
            } else {
                (room / 2, room - room / 2)
            };
            Ok(if first > second {
                [longer, shorter]
            } else {
                [shorter, longer]
            })
        }
    }
}
