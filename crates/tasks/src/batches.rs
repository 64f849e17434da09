//! From texts to the inputs of passes: tokens, padding, and neighbours of similar lengths in one batch.

use std::ops::Range;

use attentive_model::{Input, Model, PooledFrom};
use attentive_text::{Encoded, PadTo, Tokenizer, Truncation, TruncationStrategy};
use burn::tensor::{Int, Tensor, TensorData};

use crate::TaskError;

/// A text, or a pair of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text.
    pub first: String,
    /// The second of a pair.
    pub second: Option<String>,
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self {
            first: text.to_owned(),
            second: None,
        }
    }
}

/// What a model and its tokenizer make of texts.
#[derive(Clone, Copy, Debug)]
pub struct Batches<'a> {
    /// Reads the batches.
    pub model: &'a Model,
    /// Makes the tokens.
    pub tokenizer: &'a Tokenizer,
    /// Texts per batch.
    pub batch: usize,
    /// Texts with more tokens are cut; an error where nothing is said.
    pub cut: Option<usize>,
    /// How many texts came before these, for messages that number them.
    pub before: usize,
}

/// One batch, and which texts are in it.
pub(crate) struct Batch {
    pub numbers: Vec<usize>,
    pub input: Input,
    /// Where padding leaves real tokens.
    pub real: Vec<Range<usize>>,
}

impl Batches<'_> {
    /// The tokens of each text.
    pub(crate) fn encode(&self, texts: &[Text]) -> Result<Vec<Encoded>, TaskError> {
        let config = self.model.config();
        let truncation = self.cut.map(|cut| Truncation {
            length: cut.min(config.length),
            strategy: TruncationStrategy::LongestFirst,
        });
        let mut all = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let encoded = match &text.second {
                Some(second) => self
                    .tokenizer
                    .encode_pair(&text.first, second, truncation)?,
                None => self.tokenizer.encode_text(&text.first, truncation)?,
            };
            let number = self.before + index + 1;
            if encoded.ids.is_empty() {
                return Err(TaskError::Empty { number });
            }
            if encoded.ids.len() > config.length {
                return Err(TaskError::TooLong {
                    number,
                    tokens: encoded.ids.len(),
                    most: config.length,
                });
            }
            let vocabulary = config.vocabulary;
            if let Some(id) = encoded.ids.iter().find(|id| **id as usize >= vocabulary) {
                return Err(TaskError::UnknownId {
                    id: *id,
                    vocabulary,
                });
            }
            let types = config.embedding.types;
            if let Some(segment) =
                (encoded.type_ids.iter()).find(|it| types > 1 && **it as usize >= types)
            {
                return Err(TaskError::UnknownSegment {
                    segment: *segment,
                    types,
                });
            }
            all.push(encoded);
        }
        Ok(all)
    }

    /// The batches, texts of similar lengths together, so that little is padding.
    pub(crate) fn inputs(&self, encoded: &[Encoded]) -> Result<Vec<Batch>, TaskError> {
        let mut order: Vec<usize> = (0..encoded.len()).collect();
        order.sort_by_key(|number| encoded[*number].ids.len());
        let config = self.model.config();
        // What is read at the very end must not be filled up, and what ends before a token that the model does not know cannot be.
        let size = match config.pooler.as_ref().map(|it| it.from) {
            Some(PooledFrom::End) => 1,
            Some(PooledFrom::LastBut(padding)) if padding as usize >= config.vocabulary => 1,
            _ => self.batch.max(1),
        };
        let chunks = order.chunks(size);
        chunks.map(|numbers| self.input(encoded, numbers)).collect()
    }

    fn input(&self, encoded: &[Encoded], numbers: &[usize]) -> Result<Batch, TaskError> {
        let rows: Vec<Encoded> = numbers.iter().map(|it| encoded[*it].clone()).collect();
        let config = self.model.config();
        let (vocabulary, types) = (config.vocabulary, config.embedding.types);
        let mut padded = match config.pooler.as_ref().map(|it| it.from) {
            // The model finds the end of a text by the token that fills it up.
            Some(PooledFrom::LastBut(id)) => self.tokenizer.pad_with(id, &rows, PadTo::Longest)?,
            _ => self.tokenizer.pad(&rows, PadTo::Longest)?,
        };
        // A padding token may be newer than the model's table; what stands below padding is seen by nobody.
        for id in padded.ids.iter_mut().flatten() {
            *id = if (*id as usize) < vocabulary { *id } else { 0 };
        }
        for segment in padded.type_ids.iter_mut().flatten() {
            *segment = if (*segment as usize) < types {
                *segment
            } else {
                0
            };
        }
        let device = self.model.device();
        let matrix = |rows: &[Vec<u32>]| -> Tensor<2, Int> {
            let length = rows.first().map_or(0, Vec::len);
            let numbers: Vec<i64> = rows.iter().flatten().map(|it| i64::from(*it)).collect();
            Tensor::from_data(TensorData::new(numbers, [rows.len(), length]), &device)
        };
        let real: Vec<Range<usize>> = padded
            .attention_mask
            .iter()
            .map(|row| {
                let start = row.iter().position(|flag| *flag == 1).unwrap_or(0);
                start..start + row.iter().filter(|flag| **flag == 1).count()
            })
            .collect();
        let even = real
            .iter()
            .zip(&padded.ids)
            .all(|(it, ids)| it.len() == ids.len());
        let input = Input {
            types: (types > 1).then(|| matrix(&padded.type_ids)),
            keys: (!even).then(|| real.clone()),
            ..Input::new(matrix(&padded.ids))
        };
        Ok(Batch {
            numbers: numbers.to_vec(),
            input,
            real,
        })
    }
}

/// Results of batches in the order of the texts.
pub(crate) fn in_order<T>(count: usize, found: impl IntoIterator<Item = (usize, T)>) -> Vec<T> {
    let mut places: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
    for (number, value) in found {
        places[number] = Some(value);
    }
    places.into_iter().flatten().collect()
}

/// The rows of a tensor's numbers, which must be numbers.
pub(crate) fn rows<const D: usize>(tensor: Tensor<D>) -> Result<Vec<Vec<f32>>, TaskError> {
    let width = tensor.dims()[D - 1].max(1);
    let numbers = tensor
        .into_data()
        .try_to_vec::<f32>()
        .expect("scores are f32");
    match numbers.iter().any(|number| number.is_nan()) {
        true => Err(TaskError::NotANumber),
        false => Ok(numbers.chunks(width).map(<[f32]>::to_vec).collect()),
    }
}

/// Probabilities of scores, in f64 so that many small ones still add up to one.
pub(crate) fn probabilities(scores: &[f32]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = scores
        .iter()
        .map(|score| f64::from(score - largest).exp())
        .collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}
