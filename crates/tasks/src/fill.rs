//! Filling gaps in a text.

use attentive_model::{Extras, Role};
use attentive_text::Tokenizer;

use crate::batches::{in_order, probabilities, rows};
use crate::{Batches, TaskError, Text};

/// A gap and what may stand there.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// Which token of the text it is, special tokens counted.
    pub position: usize,
    /// What may stand there, likeliest first.
    pub candidates: Vec<Candidate>,
}

/// What may stand in a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The token's id.
    pub id: u32,
    /// The token as a tokenizer writes it.
    pub token: String,
    /// How likely it is.
    pub probability: f64,
    /// The text with this token in the gap, other gaps left open.
    pub text: String,
}

/// The gaps of each text with their `most` likeliest tokens.
///
/// A gap is the tokenizer's mask token, or `[MASK]` or `<mask>`, whichever the tokenizer calls it.
pub fn fill(batches: Batches, texts: &[Text], most: usize) -> Result<Vec<Vec<Gap>>, TaskError> {
    let config = batches.model.config();
    if config.head.words().is_none() || config.role != Role::Bidirectional {
        return Err(TaskError::NoHead {
            missing: "head that fills gaps",
            advice: "use one for masked language modelling (BertForMaskedLM, RobertaForMaskedLM, …)",
        });
    }
    let mask = batches.tokenizer.special_tokens().mask.clone();
    let mask = mask.ok_or(TaskError::NoMaskToken)?;
    let texts: Vec<Text> = texts.iter().map(|text| spelled(text, &mask.text)).collect();
    let encoded = batches.encode(&texts)?;
    for (text, encoded) in texts.iter().zip(&encoded) {
        if !encoded.ids.contains(&mask.id) {
            return Err(TaskError::NoGap {
                text: text.first.clone(),
                mask: mask.text.clone(),
            });
        }
    }
    let mut found = Vec::new();
    for batch in batches.inputs(&encoded)? {
        let output = batches.model.forward(batch.input, Extras::default());
        let scores = output.into_words();
        let [_, length, _] = scores.dims();
        for (row, number) in batch.numbers.iter().enumerate() {
            let ids = &encoded[*number].ids;
            let start = row * length + batch.real[row].start;
            let mut gaps = Vec::new();
            for (position, _) in ids.iter().enumerate().filter(|(_, id)| **id == mask.id) {
                let at = scores.clone().reshape([-1, scores.dims()[2] as i32]);
                let scores = rows::<2>(at.narrow(0, start + position, 1))?.remove(0);
                let candidates = best(&scores, most, batches.tokenizer, ids, position)?;
                gaps.push(Gap {
                    position,
                    candidates,
                });
            }
            found.push((*number, gaps));
        }
    }
    Ok(in_order(texts.len(), found))
}

/// The text with its gaps as the tokenizer spells them.
fn spelled(text: &Text, mask: &str) -> Text {
    let respell = |text: &str| match text.contains(mask) {
        true => text.to_owned(),
        false => text.replace("[MASK]", mask).replace("<mask>", mask),
    };
    Text {
        first: respell(&text.first),
        second: text.second.as_deref().map(respell),
    }
}

fn best(
    scores: &[f32],
    most: usize,
    tokenizer: &Tokenizer,
    ids: &[u32],
    position: usize,
) -> Result<Vec<Candidate>, TaskError> {
    let probabilities = probabilities(scores);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    // A model may have more rows than its tokenizer has tokens, to make the table's size round.
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
    known.take(most).map(candidate).collect()
}
