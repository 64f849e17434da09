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
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let length = match to {
            PadTo::Longest => longest,
            PadTo::Length(length) if longest > length => {
                return Err(TextError::RowTooLong {
                    row: longest,
                    length,
                });
            }
            PadTo::Length(length) => length,
        };
        let special = self.special_tokens();
        let even = rows.iter().all(|row| row.ids.len() == length);
        let id = match &special.padding {
            Some(token) => token.id,
            // Nothing needs to be filled up.
            None if even => 0,
            None => return Err(TextError::NoPaddingToken),
        };
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

fn filled<T: Copy>(row: &[T], length: usize, filler: T, side: Side) -> Vec<T> {
    let missing = vec![filler; length - row.len()];
    match side {
        Side::Left => [&missing, row].concat(),
        Side::Right => [row, &missing].concat(),
    }
}
