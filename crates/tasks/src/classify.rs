//! Sequence, image and token classification.

use attentive_checkpoint::{ClassificationFunction, Description};
use attentive_images::{Image, Preprocessor};
use attentive_model::head::TokenTask;
use attentive_model::{ForwardOptions, Input, Model};
use burn::tensor::{Tensor, TensorData};

use attentive_generation::softmax;

use crate::batcher::{in_order, rows};
use crate::{Batcher, TaskError, Text};

/// A class and its score.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassScore {
    /// Its index.
    pub class: usize,
    /// Its name.
    pub label: String,
    /// Its probability, or its logit with [`ClassificationFunction::None`].
    pub score: f64,
}

/// The names of a model's classes, and how its logits become scores.
#[derive(Clone, Copy, Debug)]
pub struct ClassLabels<'a> {
    /// A class without a name is called `LABEL_` and its index.
    pub names: &'a [String],
    /// Turns logits into scores.
    pub function: ClassificationFunction,
}

impl<'a> From<&'a Description> for ClassLabels<'a> {
    fn from(description: &'a Description) -> Self {
        Self {
            names: &description.labels,
            function: description.classification_function(),
        }
    }
}

/// A token and its most probable class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifiedToken {
    /// The token as the tokenizer writes it.
    pub token: String,
    /// Its byte range in the text.
    pub span: std::ops::Range<usize>,
    /// Its class.
    pub best: ClassScore,
}

/// The classes of each text, highest score first.
pub fn classify_texts(
    batcher: Batcher,
    labels: ClassLabels,
    texts: &[Text],
) -> Result<Vec<Vec<ClassScore>>, TaskError> {
    require_classes(batcher.model)?;
    let encoded = batcher.encode(texts)?;
    let mut found = Vec::new();
    for batch in batcher.batches(&encoded)? {
        let output = batcher
            .model
            .forward(batch.input, ForwardOptions::default());
        let logits = rows(output.class_logits.expect("checked above").mean())?;
        let scores = logits.iter().map(|logits| sorted_scores(logits, labels));
        found.extend(batch.indices.into_iter().zip(scores));
    }
    Ok(in_order(texts.len(), found))
}

/// The classes of each image, highest score first.
pub fn classify_images(
    model: &Model,
    preprocessor: &Preprocessor,
    labels: ClassLabels,
    images: &[Image],
    batch: usize,
) -> Result<Vec<Vec<ClassScore>>, TaskError> {
    require_classes(model)?;
    let mut found = Vec::new();
    for images in images.chunks(batch.max(1)) {
        let pixels = preprocessor.batch(images)?;
        let channels = model
            .config()
            .stack
            .patches
            .map_or(0, |patches| patches.channels);
        if pixels.channels != channels {
            return Err(TaskError::Channels {
                found: pixels.channels,
                needed: channels,
            });
        }
        let patch = model
            .config()
            .stack
            .patches
            .map_or(1, |patches| patches.size);
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
        let output = model.forward(Input::pixels(pixels), ForwardOptions::default());
        let logits = rows(output.class_logits.expect("checked above").mean())?;
        found.extend(logits.iter().map(|logits| sorted_scores(logits, labels)));
    }
    Ok(found)
}

/// The class of each token of each text, special tokens aside.
pub fn classify_tokens(
    batcher: Batcher,
    labels: &[String],
    texts: &[Text],
) -> Result<Vec<Vec<ClassifiedToken>>, TaskError> {
    let task = batcher
        .model
        .config()
        .token_classifier
        .as_ref()
        .map(|it| it.task);
    if task != Some(TokenTask::Labels) {
        return Err(TaskError::NoHead {
            missing: "token classification head",
            advice: "use one for token classification",
        });
    }
    let encoded = batcher.encode(texts)?;
    let mut found = Vec::new();
    // A token has exactly one class, whatever the problem type of sequences is.
    let labels = ClassLabels {
        names: labels,
        function: ClassificationFunction::Softmax,
    };
    for batch in batcher.batches(&encoded)? {
        let output = batcher
            .model
            .forward(batch.input, ForwardOptions::default());
        let logits = output.token_logits.expect("checked above");
        let [_, length, _] = logits.dims();
        let logits = rows(logits)?;
        for (row, index) in batch.indices.iter().enumerate() {
            let text = &encoded[*index];
            let start = row * length + batch.non_padding[row].start;
            let mut tokens = Vec::new();
            for (position, id) in text.ids.iter().enumerate() {
                if text.special_tokens_mask[position] {
                    continue;
                }
                tokens.push(ClassifiedToken {
                    token: batcher.tokenizer.token(*id)?,
                    span: text.offsets[position].clone(),
                    best: sorted_scores(&logits[start + position], labels).remove(0),
                });
            }
            found.push((*index, tokens));
        }
    }
    Ok(in_order(texts.len(), found))
}

fn require_classes(model: &Model) -> Result<(), TaskError> {
    match model.config().sequence_classifier {
        Some(_) => Ok(()),
        None => Err(TaskError::NoHead {
            missing: "classification head",
            advice: "use one for sequence or image classification",
        }),
    }
}

fn sorted_scores(logits: &[f32], labels: ClassLabels) -> Vec<ClassScore> {
    let values = logits.iter().map(|logit| f64::from(*logit));
    let scores: Vec<f64> = match labels.function {
        ClassificationFunction::None => values.collect(),
        ClassificationFunction::Softmax => softmax(logits),
        ClassificationFunction::Sigmoid => values.map(|it| 1.0 / (1.0 + (-it).exp())).collect(),
    };
    let mut all: Vec<ClassScore> = scores
        .into_iter()
        .enumerate()
        .map(|(class, score)| ClassScore {
            class,
            label: labels
                .names
                .get(class)
                .cloned()
                .unwrap_or_else(|| format!("LABEL_{class}")),
            score,
        })
        .collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.class.cmp(&b.class)));
    all
}
