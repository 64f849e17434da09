//! Batches: rows of different lengths filled up to one, with a mask that says what is real.

use crate::{Encoded, TextError, Tokenizer};

/// An end of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The beginning.
    Left,
    /// The end.
    #[default]
    Right,
}

/// How a folder wants rows to be filled up and cut.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FolderPadding {
    pub(crate) side: Side,
    pub(crate) truncation_side: Side,
    pub(crate) type_id: u32,
}

/// How long the rows of a batch become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadTo {
    /// As long as the longest.
    Longest,
    /// This long. A row that is longer is an error, as it could not be part of the batch.
    Length(usize),
}

/// Rows of one length.
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
    /// Fills rows up with the padding token of the tokenizer's folder, on the side that the folder's `padding_side` names.
    pub fn pad(&self, rows: &[Encoded], to: PadTo) -> Result<PaddedBatch, TextError> {
        let length = length_of(rows, to)?;
        let even = rows.iter().all(|row| row.ids.len() == length);
        match &self.special_tokens().padding {
            Some(token) => self.pad_with(token.id, rows, to),
            // Nothing needs to be filled up.
            None if even => self.pad_with(0, rows, to),
            None => Err(TextError::NoPaddingToken),
        }
    }

    /// The same with a token that is named.
    pub fn pad_with(&self, id: u32, rows: &[Encoded], to: PadTo) -> Result<PaddedBatch, TextError> {
        let length = length_of(rows, to)?;
        let FolderPadding { side, type_id, .. } = self.facts().padding;
        Ok(PaddedBatch {
            ids: rows
                .iter()
                .map(|row| filled(&row.ids, length, id, side))
                .collect(),
            type_ids: rows
                .iter()
                .map(|row| filled(&row.type_ids, length, type_id, side))
                .collect(),
            attention_mask: rows
                .iter()
                .map(|row| filled(&vec![1; row.ids.len()], length, 0, side))
                .collect(),
        })
    }
}

/// How long the rows become.
fn length_of(rows: &[Encoded], to: PadTo) -> Result<usize, TextError> {
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

fn filled<T: Copy>(row: &[T], length: usize, filler: T, side: Side) -> Vec<T> {
    let missing = vec![filler; length - row.len()];
    match side {
        Side::Left => [&missing, row].concat(),
        Side::Right => [row, &missing].concat(),
    }
}
