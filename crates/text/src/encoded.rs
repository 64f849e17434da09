//! Encoded texts and pairs: ids with special tokens, type ids and offsets, optionally truncated.

use std::ops::Range;

use tokenizers::Encoding;

use crate::padding::Side;
use crate::tokenizer::guarded;
use crate::{TextError, Tokenizer};

/// An encoded text or pair. All vectors have the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// `input_ids`.
    pub ids: Vec<u32>,
    /// `token_type_ids`.
    pub type_ids: Vec<u32>,
    /// Whether the tokenizer added the token. A special token written in the text itself does not count.
    pub special_tokens_mask: Vec<bool>,
    /// The range of the token in its text, in bytes of UTF-8; empty for added tokens. For those of Python, which counts
    /// characters, see [`Encoded::character_offsets`].
    pub offsets: Vec<Range<usize>>,
    /// The text that the token is from; `None` for added tokens.
    pub sequence_ids: Vec<Option<SequenceId>>,
}

/// The first or the second text of a pair; a single text is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceId {
    /// The first, or the only one.
    First,
    /// The second.
    Second,
}

/// How to truncate a text or pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// The maximum length, including special tokens (`max_length`).
    pub length: usize,
    /// Which text to shorten.
    pub strategy: TruncationStrategy,
}

/// Which text of a pair to shorten. The side is `truncation_side` of the folder, right by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationStrategy {
    /// The longer one until both are equally long, then both.
    LongestFirst,
    /// Only the first.
    OnlyFirst,
    /// Only the second.
    OnlySecond,
}

impl Tokenizer {
    /// Encodes a text with special tokens.
    pub fn encode_text(
        &self,
        text: &str,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TextError> {
        self.refuse_unknown(text)?;
        let [(code, text)] = self.split_language_codes([text]);
        let encoding = guarded(|| self.inner().encode_char_offsets(text, true))?;
        let encoded = Encoded::of(&encoding, [text, ""]);
        let encoded = self.with_language_codes(encoded, encoding.get_tokens(), &[code]);
        self.truncate(encoded, false, truncation)
    }

    /// Encodes a pair of texts with special tokens.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TextError> {
        self.refuse_unknown(first)?;
        self.refuse_unknown(second)?;
        let [(one, first), (two, second)] = self.split_language_codes([first, second]);
        let encoding = guarded(|| self.inner().encode_char_offsets((first, second), true))?;
        let encoded = Encoded::of(&encoding, [first, second]);
        let encoded = self.with_language_codes(encoded, encoding.get_tokens(), &[one, two]);
        self.truncate(encoded, true, truncation)
    }

    fn truncate(
        &self,
        encoded: Encoded,
        pair: bool,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TextError> {
        match truncation {
            None => Ok(encoded),
            Some(truncation) => {
                encoded.truncated(pair, truncation, self.settings().padding.truncation_side)
            }
        }
    }
}

impl Encoded {
    /// From an encoding with character offsets. Byte offsets may fall inside a character, because trimming a space
    /// subtracts one byte.
    fn of(encoding: &Encoding, texts: [&str; 2]) -> Self {
        let starts = texts.map(|text| {
            let starts = text.char_indices().map(|(start, _)| start);
            starts.chain([text.len()]).collect::<Vec<usize>>()
        });
        let added = encoding
            .get_special_tokens_mask()
            .iter()
            .map(|mask| *mask == 1);
        let sequence_id = |sequence: Option<usize>| match sequence {
            Some(0) => Some(SequenceId::First),
            Some(_) => Some(SequenceId::Second),
            None => None,
        };
        let sequences = encoding.get_sequence_ids().into_iter().zip(added.clone());
        let sequence_ids: Vec<Option<SequenceId>> = sequences
            .map(|(sequence, added)| sequence_id(sequence).filter(|_| !added))
            .collect();
        let offset = |((start, end), text): (&(usize, usize), &Option<SequenceId>)| match text {
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
                .zip(&sequence_ids)
                .map(offset)
                .collect(),
            sequence_ids,
            special_tokens_mask: added.collect(),
        }
    }

    /// The offsets in characters (Unicode scalar values, as Python counts them) instead of bytes. `texts` are the two that were
    /// encoded; the second of a single text is empty.
    pub fn character_offsets(&self, texts: [&str; 2]) -> Vec<Range<usize>> {
        let starts = texts.map(|text| {
            let starts = text.char_indices().map(|(start, _)| start);
            starts.collect::<Vec<usize>>()
        });
        let range = |(range, text): (&Range<usize>, &Option<SequenceId>)| match text {
            None => 0..0,
            Some(text) => {
                let before = |byte| starts[*text as usize].partition_point(|start| *start < byte);
                before(range.start)..before(range.end)
            }
        };
        self.offsets
            .iter()
            .zip(&self.sequence_ids)
            .map(range)
            .collect()
    }

    /// Truncates the texts, but not the added tokens. These do not depend on text lengths, so this equals truncating
    /// before post-processing, as Hugging Face does.
    fn truncated(self, pair: bool, truncation: Truncation, side: Side) -> Result<Self, TextError> {
        let count = |text: SequenceId| {
            self.sequence_ids
                .iter()
                .filter(|sequence| **sequence == Some(text))
                .count()
        };
        let (first, second) = (count(SequenceId::First), count(SequenceId::Second));
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
        let lengths = truncated_lengths(first, second, pair, room, truncation)?;
        Ok(self.keep(&lengths, [first, second], side))
    }

    /// Splits a pair of more than `length` tokens into windows of its second text, which share `overlap` tokens: Hugging Face's
    /// truncation with `stride` and `return_overflowing_tokens`.
    pub fn windows_of_second(self, length: usize, overlap: usize) -> Result<Vec<Self>, TextError> {
        if self.ids.len() <= length {
            return Ok(vec![self]);
        }
        let is_second = |text: &Option<SequenceId>| *text == Some(SequenceId::Second);
        let second = self.sequence_ids.iter().filter(|it| is_second(it)).count();
        let room = length.saturating_sub(self.ids.len() - second);
        if room <= overlap {
            return Err(TextError::CannotTruncate {
                length,
                text: "second",
            });
        }
        let starts = (0..second).step_by(room - overlap);
        // The last window reaches the end.
        let starts = starts.take_while(|start| *start == 0 || start + overlap < second);
        let window = |start: usize| {
            let mut seen = 0;
            let keeps = self.sequence_ids.iter().map(|text| match is_second(text) {
                false => true,
                true => {
                    seen += 1;
                    (start..start + room).contains(&(seen - 1))
                }
            });
            let keeps: Vec<bool> = keeps.collect();
            self.clone().filtered(&keeps)
        };
        Ok(starts.map(window).collect())
    }

    /// Keeps `new` of the `old` tokens of each text.
    fn keep(self, new: &[usize; 2], old: [usize; 2], side: Side) -> Self {
        let mut seen = [0, 0];
        let keeps: Vec<bool> = self
            .sequence_ids
            .iter()
            .map(|text| {
                let Some(text) = text else { return true };
                let text = *text as usize;
                seen[text] += 1;
                match side {
                    Side::Right => seen[text] <= new[text],
                    Side::Left => seen[text] > old[text] - new[text],
                }
            })
            .collect();
        self.filtered(&keeps)
    }

    /// Keeps the tokens that are marked.
    fn filtered(self, keeps: &[bool]) -> Self {
        fn only<T>(list: Vec<T>, keeps: &[bool]) -> Vec<T> {
            list.into_iter()
                .zip(keeps)
                .filter_map(|(item, keeps)| keeps.then_some(item))
                .collect()
        }
        Self {
            ids: only(self.ids, keeps),
            type_ids: only(self.type_ids, keeps),
            special_tokens_mask: only(self.special_tokens_mask, keeps),
            offsets: only(self.offsets, keeps),
            sequence_ids: only(self.sequence_ids, keeps),
        }
    }
}

/// The truncated lengths of texts of `first` and `second` tokens that must fit into `room`.
fn truncated_lengths(
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
            // Shorten only the longer one if that is enough; else both, where the longer one keeps the odd token.
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
