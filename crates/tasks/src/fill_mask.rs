//! Fill-mask: the most probable tokens at masked positions.

use attentive_model::ForwardOptions;
use attentive_model::attention::Role;
use attentive_text::{Encoded, SequenceId, SpecialToken, Tokenizer};

use attentive_generation::softmax;

use crate::batcher::{in_order, rows};
use crate::{Batcher, TaskError, Text};

/// A masked position and its most probable tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedToken {
    /// Its index among the tokens of the text, special tokens included.
    pub position: usize,
    /// Most probable first.
    pub candidates: Vec<Candidate>,
}

/// A token for a masked position.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The token's id.
    pub id: u32,
    /// The token as the tokenizer writes it.
    pub token: String,
    /// Its probability.
    pub probability: f64,
    /// The text with this token at the masked position; other masks stay.
    pub text: String,
}

/// The masked positions of each text with their `top` most probable tokens.
///
/// `[MASK]` and `<mask>` stand for the tokenizer's mask token, whatever it is called.
pub fn fill_mask(
    batcher: Batcher,
    texts: &[Text],
    top: usize,
) -> Result<Vec<Vec<MaskedToken>>, TaskError> {
    let config = batcher.model.config();
    if config.head.lm_head().is_none() || config.stack.role != Role::Bidirectional {
        return Err(TaskError::NoHead {
            missing: "masked language modelling head",
            advice: "use a masked language model (BertForMaskedLM, RobertaForMaskedLM, …)",
        });
    }
    let mask = batcher.tokenizer.special_tokens().mask.clone();
    let mask = mask.ok_or(TaskError::NoMaskToken)?;
    let texts: Vec<Text> = texts
        .iter()
        .map(|text| with_mask_token(text, &mask.text))
        .collect();
    let encoded = batcher.encode(&texts)?;
    for (index, (text, encoded)) in texts.iter().zip(&encoded).enumerate() {
        check_masks(batcher, index, text, encoded, &mask)?;
    }
    let mut found = Vec::new();
    for batch in batcher.batches(&encoded)? {
        let output = batcher
            .model
            .forward(batch.input, ForwardOptions::default());
        let logits = output.into_logits();
        let [_, length, vocabulary] = logits.dims();
        for (row, index) in batch.indices.iter().enumerate() {
            let text = MaskedText {
                text: &texts[*index],
                encoded: &encoded[*index],
                mask: &mask,
                tokenizer: batcher.tokenizer,
            };
            let start = row * length + batch.non_padding[row].start;
            let mut masked = Vec::new();
            for position in positions(&text.encoded.ids, mask.id) {
                let all = logits.clone().reshape([-1, vocabulary as i32]);
                let logits = rows::<2>(all.narrow(0, start + position, 1))?.remove(0);
                masked.push(MaskedToken {
                    position,
                    candidates: text.best(&logits, top, position)?,
                });
            }
            found.push((*index, masked));
        }
    }
    Ok(in_order(texts.len(), found))
}

/// Replaces `[MASK]` and `<mask>` by the tokenizer's mask token.
fn with_mask_token(text: &Text, mask: &str) -> Text {
    let replace = |text: &str| text.replace("[MASK]", mask).replace("<mask>", mask);
    Text {
        first: replace(&text.first),
        second: text.second.as_deref().map(replace),
    }
}

/// The positions of the masks.
fn positions(ids: &[u32], mask: u32) -> Vec<usize> {
    let positions = ids.iter().enumerate().filter(|(_, id)| **id == mask);
    positions.map(|(position, _)| position).collect()
}

/// An error for a text without a mask, or of which truncation has cut one off.
fn check_masks(
    batcher: Batcher,
    index: usize,
    text: &Text,
    encoded: &Encoded,
    mask: &SpecialToken,
) -> Result<(), TaskError> {
    let left = positions(&encoded.ids, mask.id).len();
    let all = match batcher.truncate {
        true => positions(&batcher.tokenize(text, None)?.ids, mask.id).len(),
        false => left,
    };
    if left < all {
        return Err(TaskError::TruncatedMask {
            number: batcher.offset + index + 1,
            length: encoded.ids.len(),
            mask: mask.text.clone(),
        });
    }
    if left == 0 {
        return Err(TaskError::NoMask {
            text: text.first.clone(),
            mask: mask.text.clone(),
        });
    }
    Ok(())
}

/// A text with masks.
struct MaskedText<'a> {
    text: &'a Text,
    encoded: &'a Encoded,
    mask: &'a SpecialToken,
    tokenizer: &'a Tokenizer,
}

impl MaskedText<'_> {
    /// The most probable tokens at a position.
    fn best(
        &self,
        logits: &[f32],
        top: usize,
        position: usize,
    ) -> Result<Vec<Candidate>, TaskError> {
        let probabilities = softmax(logits);
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        // A model's vocabulary may be padded beyond the tokenizer's.
        let known = order
            .into_iter()
            .filter(|id| *id < self.tokenizer.vocabulary());
        let candidate = |id: usize| -> Result<Candidate, TaskError> {
            Ok(Candidate {
                id: id as u32,
                token: self.tokenizer.token(id as u32)?,
                probability: probabilities[id],
                text: self.filled(position, id as u32)?,
            })
        };
        known.take(top).map(candidate).collect()
    }

    /// The text with a token at a position; the other masks stay.
    fn filled(&self, position: usize, id: u32) -> Result<String, TaskError> {
        let mut ids = self.encoded.ids.clone();
        ids[position] = id;
        let decoded = self.tokenizer.decode_keeping(&ids, self.mask.id)?;
        let masks = positions(&ids, self.mask.id);
        let mut parts = decoded.split(&self.mask.text);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (index, part) in parts.enumerate() {
            // Many tokenizers take the space before a mask as a part of it, so that decoding does not give it back.
            let spaced = masks.get(index).is_some_and(|at| self.follows_space(*at));
            if spaced && !text.is_empty() && !text.ends_with(char::is_whitespace) {
                text.push(' ');
            }
            text += &self.mask.text;
            text += part;
        }
        Ok(text)
    }

    /// Whether there is a space before a token.
    fn follows_space(&self, position: usize) -> bool {
        let text = match self.encoded.sequence_ids[position] {
            Some(SequenceId::First) => self.text.first.as_str(),
            Some(SequenceId::Second) => self.text.second.as_deref().unwrap_or_default(),
            None => return false,
        };
        let range = self.encoded.offsets[position].clone();
        let before = text.get(..range.start);
        let token = text.get(range);
        before.is_some_and(|before| before.ends_with(char::is_whitespace))
            || token.is_some_and(|token| token.starts_with(char::is_whitespace))
    }
}
