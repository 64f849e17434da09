//! Batches of texts: tokenized, padded, and sorted by length so that batches need little padding.

use std::ops::Range;

use attentive_model::head::PooledFrom;
use attentive_model::{Input, Model, ids_tensor};
use attentive_text::{Encoded, PadTo, Tokenizer, Truncation, TruncationStrategy};
use burn::tensor::Tensor;

use crate::TaskError;

/// A text, or a pair of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text.
    pub first: String,
    /// The second of a pair.
    pub second: Option<String>,
}

impl From<String> for Text {
    fn from(first: String) -> Self {
        Self {
            first,
            second: None,
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<(&str, &str)> for Text {
    fn from((first, second): (&str, &str)) -> Self {
        Self::pair(first, second)
    }
}

impl Text {
    /// A pair of texts.
    pub fn pair(first: impl Into<String>, second: impl Into<String>) -> Self {
        Self {
            first: first.into(),
            second: Some(second.into()),
        }
    }
}

/// Runs texts through a model in batches.
#[derive(Clone, Copy, Debug)]
pub struct Batcher<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Texts per batch.
    pub batch_size: usize,
    /// The tokens that a text may have, where that is less than the model's length.
    pub max_length: Option<usize>,
    /// Truncates texts that do not fit; without it, such a text is an error.
    pub truncate: bool,
    /// The number of earlier texts, for errors that number them.
    pub offset: usize,
}

/// A padded batch.
pub(crate) struct PaddedBatch {
    /// The index of each row's text.
    pub indices: Vec<usize>,
    pub input: Input,
    pub non_padding: Vec<Range<usize>>,
}

impl Batcher<'_> {
    /// Tokenizes texts.
    pub(crate) fn encode(&self, texts: &[Text]) -> Result<Vec<Encoded>, TaskError> {
        let length = self.model.config().stack.length;
        let length = self.max_length.map_or(length, |max| max.min(length));
        let truncation = self.truncate.then_some(Truncation {
            length,
            strategy: TruncationStrategy::LongestFirst,
        });
        let mut all = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let encoded = self.tokenize(text, truncation)?;
            let number = self.offset + index + 1;
            if encoded.ids.is_empty() {
                return Err(TaskError::Empty { number });
            }
            if encoded.ids.len() > length {
                return Err(TaskError::TooLong {
                    number,
                    tokens: encoded.ids.len(),
                    length,
                });
            }
            self.check_ids(&encoded)?;
            all.push(encoded);
        }
        Ok(all)
    }

    /// Tokenizes a text or a pair.
    pub(crate) fn tokenize(
        &self,
        text: &Text,
        truncation: Option<Truncation>,
    ) -> Result<Encoded, TaskError> {
        Ok(match &text.second {
            Some(second) => self
                .tokenizer
                .encode_pair(&text.first, second, truncation)?,
            None => self.tokenizer.encode_text(&text.first, truncation)?,
        })
    }

    /// Whether the model has all ids and token types.
    fn check_ids(&self, encoded: &Encoded) -> Result<(), TaskError> {
        let stack = &self.model.config().stack;
        let vocabulary = stack.vocabulary;
        if let Some(id) = encoded.ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(TaskError::UnknownId {
                id: *id,
                vocabulary,
            });
        }
        let types = stack.embedding.types;
        if let Some(token_type) =
            (encoded.type_ids.iter()).find(|it| types > 1 && **it as usize >= types)
        {
            return Err(TaskError::UnknownTokenType {
                token_type: *token_type,
                types,
            });
        }
        Ok(())
    }

    /// Tokenizes a pair, in windows of the second text where the pair exceeds `length`.
    pub(crate) fn encode_windows(
        &self,
        text: &Text,
        length: usize,
        overlap: usize,
    ) -> Result<Vec<Encoded>, TaskError> {
        let second = text.second.as_deref().unwrap_or_default();
        let encoded = self.tokenizer.encode_pair(&text.first, second, None)?;
        self.check_ids(&encoded)?;
        Ok(encoded.windows_of_second(length, overlap)?)
    }

    /// Batches of texts of similar length.
    pub(crate) fn batches(&self, encoded: &[Encoded]) -> Result<Vec<PaddedBatch>, TaskError> {
        let mut order: Vec<usize> = (0..encoded.len()).collect();
        order.sort_by_key(|index| encoded[*index].ids.len());
        let config = self.model.config();
        // Pooling at the last position allows no padding, and neither does a pad token outside the vocabulary.
        let size = match config.pooler.as_ref().map(|it| it.from) {
            Some(PooledFrom::End) => 1,
            Some(PooledFrom::LastNonPad(padding))
                if padding as usize >= config.stack.vocabulary =>
            {
                1
            }
            _ => self.batch_size.max(1),
        };
        let chunks = order.chunks(size);
        chunks.map(|indices| self.pad(encoded, indices)).collect()
    }

    fn pad(&self, encoded: &[Encoded], indices: &[usize]) -> Result<PaddedBatch, TaskError> {
        let rows: Vec<Encoded> = indices.iter().map(|it| encoded[*it].clone()).collect();
        let config = self.model.config();
        let (vocabulary, types) = (config.stack.vocabulary, config.stack.embedding.types);
        let mut padded = match config.pooler.as_ref().map(|it| it.from) {
            // This pooling finds the end of a text by its pad token.
            Some(PooledFrom::LastNonPad(id)) => {
                self.tokenizer.pad_with(id, &rows, PadTo::Longest)?
            }
            _ => self.tokenizer.pad(&rows, PadTo::Longest)?,
        };
        // A pad token may be outside the model's vocabulary; padding is masked, so any id will do.
        for id in padded.ids.iter_mut().flatten() {
            *id = if (*id as usize) < vocabulary { *id } else { 0 };
        }
        for token_type in padded.type_ids.iter_mut().flatten() {
            *token_type = if (*token_type as usize) < types {
                *token_type
            } else {
                0
            };
        }
        let device = self.model.device();
        let non_padding: Vec<Range<usize>> = padded
            .attention_mask
            .iter()
            .map(|row| {
                let start = row.iter().position(|flag| *flag == 1).unwrap_or(0);
                start..start + row.iter().filter(|flag| **flag == 1).count()
            })
            .collect();
        let equal = non_padding
            .iter()
            .zip(&padded.ids)
            .all(|(it, ids)| it.len() == ids.len());
        let input = Input {
            types: (types > 1).then(|| ids_tensor(&padded.type_ids, &device)),
            non_padding: (!equal).then(|| non_padding.clone()),
            ..Input::new(ids_tensor(&padded.ids, &device))
        };
        Ok(PaddedBatch {
            indices: indices.to_vec(),
            input,
            non_padding,
        })
    }
}

/// Results of batches, in the order of the texts.
pub(crate) fn in_order<T>(count: usize, found: impl IntoIterator<Item = (usize, T)>) -> Vec<T> {
    let mut ordered: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
    for (index, value) in found {
        ordered[index] = Some(value);
    }
    ordered.into_iter().flatten().collect()
}

/// The rows of a tensor; an error if a value is NaN.
pub(crate) fn rows<const D: usize>(tensor: Tensor<D>) -> Result<Vec<Vec<f32>>, TaskError> {
    let width = tensor.dims()[D - 1].max(1);
    let values = tensor
        .into_data()
        .try_to_vec::<f32>()
        .expect("model outputs are f32");
    match values.iter().any(|value| value.is_nan()) {
        true => Err(TaskError::NanOutput),
        false => Ok(values.chunks(width).map(<[f32]>::to_vec).collect()),
    }
}
