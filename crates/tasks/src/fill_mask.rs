//! Fill-mask: the most probable tokens at masked positions.

use attentive_model::ForwardOptions;
use attentive_model::attention::Role;
use attentive_text::Tokenizer;

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
    for (text, encoded) in texts.iter().zip(&encoded) {
        if !encoded.ids.contains(&mask.id) {
            return Err(TaskError::NoMask {
                text: text.first.clone(),
                mask: mask.text.clone(),
            });
        }
    }
    let mut found = Vec::new();
    for batch in batcher.batches(&encoded)? {
        let output = batcher
            .model
            .forward(batch.input, ForwardOptions::default());
        let logits = output.into_logits();
        let [_, length, vocabulary] = logits.dims();
        for (row, index) in batch.indices.iter().enumerate() {
            let ids = &encoded[*index].ids;
            let start = row * length + batch.non_padding[row].start;
            let mut masked = Vec::new();
            for (position, _) in ids.iter().enumerate().filter(|(_, id)| **id == mask.id) {
                let all = logits.clone().reshape([-1, vocabulary as i32]);
                let logits = rows::<2>(all.narrow(0, start + position, 1))?.remove(0);
                let candidates = best(&logits, top, batcher.tokenizer, ids, position)?;
                masked.push(MaskedToken {
                    position,
                    candidates,
                });
            }
            found.push((*index, masked));
        }
    }
    Ok(in_order(texts.len(), found))
}

/// Replaces `[MASK]` and `<mask>` by the tokenizer's mask token.
fn with_mask_token(text: &Text, mask: &str) -> Text {
    let replace = |text: &str| match text.contains(mask) {
        true => text.to_owned(),
        false => text.replace("[MASK]", mask).replace("<mask>", mask),
    };
    Text {
        first: replace(&text.first),
        second: text.second.as_deref().map(replace),
    }
}

fn best(
    logits: &[f32],
    top: usize,
    tokenizer: &Tokenizer,
    ids: &[u32],
    position: usize,
) -> Result<Vec<Candidate>, TaskError> {
    let probabilities = softmax(logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    // A model's vocabulary may be padded beyond the tokenizer's.
    let known = order.into_iter().filter(|id| *id < tokenizer.vocabulary());
    let candidate = |id: usize| -> Result<Candidate, TaskError> {
        let mut filled = ids.to_vec();
        filled[position] = id as u32;
        Ok(Candidate {
            id: id as u32,
            token: tokenizer.token(id as u32)?,
            probability: probabilities[id],
            text: tokenizer.decode(&filled)?,
        })
    };
    known.take(top).map(candidate).collect()
}
