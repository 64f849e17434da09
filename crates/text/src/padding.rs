//! Padded batches with attention masks.

use crate::{Encoded, TextError, Tokenizer};

/// A side of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The start.
    Left,
    /// The end.
    #[default]
    Right,
}

/// The padding and truncation settings of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PaddingSettings {
    pub(crate) side: Side,
    pub(crate) truncation_side: Side,
    pub(crate) type_id: u32,
}

/// The length to pad to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadTo {
    /// The length of the longest row.
    Longest,
    /// This length; a longer row is an error.
    Length(usize),
}

/// Rows of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaddedBatch {
    /// The ids of each row.
    pub ids: Vec<Vec<u32>>,
    /// The type ids of each row.
    pub type_ids: Vec<Vec<u32>>,
    /// 1 for a token, 0 for padding.
    pub attention_mask: Vec<Vec<u8>>,
}

impl Tokenizer {
    /// Pads rows with the padding token of the folder, on its `padding_side`.
    pub fn pad(&self, rows: &[Encoded], to: PadTo) -> Result<PaddedBatch, TextError> {
        let length = padded_length(rows, to)?;
        let even = rows.iter().all(|row| row.ids.len() == length);
        match &self.special_tokens().pad {
            Some(token) => self.pad_with(token.id, rows, to),
            // No padding needed.
            None if even => self.pad_with(0, rows, to),
            None => Err(TextError::NoPaddingToken),
        }
    }

    /// Pads rows with this token.
    pub fn pad_with(&self, id: u32, rows: &[Encoded], to: PadTo) -> Result<PaddedBatch, TextError> {
        let length = padded_length(rows, to)?;
        let PaddingSettings { side, type_id, .. } = self.settings().padding;
        Ok(PaddedBatch {
            ids: rows
                .iter()
                .map(|row| padded(&row.ids, length, id, side))
                .collect(),
            type_ids: rows
                .iter()
                .map(|row| padded(&row.type_ids, length, type_id, side))
                .collect(),
            attention_mask: rows
                .iter()
                .map(|row| padded(&vec![1; row.ids.len()], length, 0, side))
                .collect(),
        })
    }
}

/// The length of the padded rows.
fn padded_length(rows: &[Encoded], to: PadTo) -> Result<usize, TextError> {
    let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
    match to {
        PadTo::Longest => Ok(longest),
        PadTo::Length(length) if longest > length => Err(TextError::RowTooLong {
            row: longest,
            length,
        }),
        PadTo::Length(length) => Ok(length),
    }
}

fn padded<T: Copy>(row: &[T], length: usize, value: T, side: Side) -> Vec<T> {
    let missing = vec![value; length - row.len()];
    match side {
        Side::Left => [&missing, row].concat(),
        Side::Right => [row, &missing].concat(),
    }
}
