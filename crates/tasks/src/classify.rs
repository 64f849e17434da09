//! Classes of texts and pictures, and labels of tokens.

use attentive_images::{Image, Preprocessor};
use attentive_model::checkpoint::{Description, ScoresAs};
use attentive_model::{Extras, Input, LabelsUse, Model};
use burn::tensor::{Tensor, TensorData};

use crate::batches::{in_order, probabilities, rows};
use crate::{Batches, TaskError, Text};

/// A class and its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Its number.
    pub class: usize,
    /// Its name.
    pub label: String,
    /// How likely it is; where scores are plain, the number that the model gives.
    pub score: f64,
}

/// What the scores of a model's classes or labels mean.
#[derive(Clone, Copy, Debug)]
pub struct Meaning<'a> {
    /// Their names; those without one are called by their number.
    pub labels: &'a [String],
    /// How scores of classes are read.
    pub scores: ScoresAs,
}

impl<'a> From<&'a Description> for Meaning<'a> {
    fn from(description: &'a Description) -> Self {
        Self {
            labels: &description.labels,
            scores: description.class_scores(),
        }
    }
}

/// A token of a text and its likeliest label.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledToken {
    /// The token as the tokenizer writes it.
    pub token: String,
    /// Where it stands in the text, in bytes.
    pub place: std::ops::Range<usize>,
    /// Its label.
    pub best: Scored,
}

/// The classes of each text, highest score first.
pub fn classify_texts(
    batches: Batches,
    meaning: Meaning,
    texts: &[Text],
) -> Result<Vec<Vec<Scored>>, TaskError> {
    require_classes(batches.model)?;
    let encoded = batches.encode(texts)?;
    let mut found = Vec::new();
    for batch in batches.inputs(&encoded)? {
        let output = batches.model.forward(batch.input, Extras::default());
        let scores = rows(output.classes.expect("asked above").mean())?;
        let scored = scores.iter().map(|scores| sorted(scores, meaning));
        found.extend(batch.numbers.into_iter().zip(scored));
    }
    Ok(in_order(texts.len(), found))
}

/// The classes of each picture, highest score first.
pub fn classify_images(
    model: &Model,
    preprocessor: &Preprocessor,
    meaning: Meaning,
    images: &[Image],
    batch: usize,
) -> Result<Vec<Vec<Scored>>, TaskError> {
    require_classes(model)?;
    let mut found = Vec::new();
    for images in images.chunks(batch.max(1)) {
        let pixels = preprocessor.batch(images)?;
        let channels = model.config().patches.map_or(0, |patches| patches.channels);
        if pixels.channels != channels {
            return Err(TaskError::Channels {
                found: pixels.channels,
                needed: channels,
            });
        }
        let patch = model.config().patches.map_or(1, |patches| patches.size);
        if [pixels.height, pixels.width]
            .iter()
            .any(|it| !it.is_multiple_of(patch))
        {
            return Err(TaskError::Patches {
                height: pixels.height,
                width: pixels.width,
                patch,
            });
        }
        let shape = [images.len(), pixels.channels, pixels.height, pixels.width];
        let pixels = Tensor::from_data(TensorData::new(pixels.values, shape), &model.device());
        let output = model.forward(Input::pixels(pixels), Extras::default());
        let scores = rows(output.classes.expect("asked above").mean())?;
        found.extend(scores.iter().map(|scores| sorted(scores, meaning)));
    }
    Ok(found)
}

/// The labels of each token of each text, tokens that the tokenizer added left out.
pub fn label_tokens(
    batches: Batches,
    labels: &[String],
    texts: &[Text],
) -> Result<Vec<Vec<LabelledToken>>, TaskError> {
    let about = batches.model.config().labels.as_ref().map(|it| it.about);
    if about != Some(LabelsUse::Tokens) {
        return Err(TaskError::NoHead {
            missing: "head that labels tokens",
            advice: "use one for token classification",
        });
    }
    let encoded = batches.encode(texts)?;
    let mut found = Vec::new();
    // A token has one label, whatever a sequence has.
    let meaning = Meaning {
        labels,
        scores: ScoresAs::Exclusive,
    };
    for batch in batches.inputs(&encoded)? {
        let output = batches.model.forward(batch.input, Extras::default());
        let scores = output.labels.expect("asked above");
        let [_, length, _] = scores.dims();
        let scores = rows(scores)?;
        for (row, number) in batch.numbers.iter().enumerate() {
            let text = &encoded[*number];
            let start = row * length + batch.real[row].start;
            let mut tokens = Vec::new();
            for (position, id) in text.ids.iter().enumerate() {
                if text.special_mask[position] {
                    continue;
                }
                tokens.push(LabelledToken {
                    token: batches.tokenizer.token(*id)?,
                    place: text.offsets[position].clone(),
                    best: sorted(&scores[start + position], meaning).remove(0),
                });
            }
            found.push((*number, tokens));
        }
    }
    Ok(in_order(texts.len(), found))
}

fn require_classes(model: &Model) -> Result<(), TaskError> {
    match model.config().classes {
        Some(_) => Ok(()),
        None => Err(TaskError::NoHead {
            missing: "head for classes",
            advice: "use one for sequence or image classification",
        }),
    }
}

fn sorted(scores: &[f32], meaning: Meaning) -> Vec<Scored> {
    let numbers = scores.iter().map(|score| f64::from(*score));
    let read: Vec<f64> = match meaning.scores {
        ScoresAs::Plain => numbers.collect(),
        ScoresAs::Exclusive => probabilities(scores),
        ScoresAs::Independent => numbers.map(|it| 1.0 / (1.0 + (-it).exp())).collect(),
    };
    let mut all: Vec<Scored> = read
        .into_iter()
        .enumerate()
        .map(|(class, score)| Scored {
            class,
            label: meaning
                .labels
                .get(class)
                .cloned()
                .unwrap_or_else(|| format!("LABEL_{class}")),
            score,
        })
        .collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.class.cmp(&b.class)));
    all
}
