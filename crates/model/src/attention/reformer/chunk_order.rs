//! The order of positions in chunks: by position, or sorted by bucket for each hash. The last chunk and the first are neighbours.

use std::ops::Range;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, IntDType, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::{refuse, size};

/// To which length sequences are padded before they are chunked, if not to a multiple of the chunk: in Hugging Face's Reformer,
/// layers with different chunks share one padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaddingConfig {
    /// Sequences are padded to a multiple of this, which must be a multiple of the chunk.
    pub multiple_of: usize,
    /// Sequences of at most this length are not padded.
    pub beyond: usize,
}

impl PaddingConfig {
    /// Sequences longer than `beyond` are padded to a multiple of `multiple_of`.
    pub fn new(multiple_of: usize, beyond: usize) -> Self {
        Self {
            multiple_of,
            beyond,
        }
    }

    /// Whether the padding is valid for chunks of this size.
    pub(in crate::attention) fn validate(
        &self,
        path: &str,
        chunk: usize,
    ) -> Result<(), ConfigError> {
        size(&format!("{path}.multiple_of"), self.multiple_of)?;
        if !self.multiple_of.is_multiple_of(chunk) {
            return refuse(
                &format!("{path}.multiple_of"),
                format!(
                    "{} is not a multiple of the chunk, {chunk}",
                    self.multiple_of
                ),
            );
        }
        if self.beyond > chunk {
            return refuse(
                &format!("{path}.beyond"),
                format!(
                    "{} is out of range; use 0 to {chunk}, the chunk",
                    self.beyond
                ),
            );
        }
        Ok(())
    }
}

/// The length after padding. A sequence that fits into one chunk is not padded by default.
pub(in crate::attention) fn padded_length(
    length: usize,
    chunk: usize,
    padding: Option<&PaddingConfig>,
) -> usize {
    let (multiple_of, beyond) = padding.map_or((chunk, chunk), |it| (it.multiple_of, it.beyond));
    match length <= beyond {
        true => length,
        false => length.next_multiple_of(multiple_of),
    }
}

/// Refuses more neighbours than the longest sequence has chunks. A sequence that fits into one chunk has no neighbours.
pub(in crate::attention) fn check_neighbours(
    path: &str,
    length: usize,
    (chunk, padding): (usize, Option<&PaddingConfig>),
    [before, after]: [usize; 2],
) -> Result<(), ConfigError> {
    let padded = match length <= chunk {
        true => padded_length(length, chunk, padding),
        false => length,
    };
    let chunks = padded.div_ceil(chunk);
    let neighbours = before.saturating_add(after);
    match chunks > 1 && neighbours > chunks {
        true => refuse(
            &format!("{path}.chunks_before"),
            format!(
                "{neighbours} chunks before and after are more than there are; a length of {length} has {chunks}"
            ),
        ),
        false => Ok(()),
    }
}

/// The order of the positions for all hashes, and which chunks attend to which.
pub(in crate::attention) struct ChunkOrder {
    /// The position of each entry, `[rows, hashes · padded_length]`; a row is a head of a sequence.
    pub(in crate::attention) positions: Tensor<2, Int>,
    /// Which entries are padding, of the same shape.
    pub(in crate::attention) padding: Option<Tensor<2, Bool>>,
    pub(in crate::attention) hashes: usize,
    pub(in crate::attention) chunk: usize,
    pub(in crate::attention) before: usize,
    pub(in crate::attention) after: usize,
}

impl ChunkOrder {
    /// Vectors `[batch, heads, length, width]` ordered by position, padded to `padded_length`.
    pub(in crate::attention) fn by_position(
        vectors: &Tensor<4>,
        padded_length: usize,
        chunk: usize,
        [before, after]: [usize; 2],
        non_padding: Option<&[Range<usize>]>,
    ) -> Self {
        let [batch, heads, length, _] = vectors.dims();
        let positions = arange(padded_length, &vectors.device()).unsqueeze::<2>();
        Self {
            positions: positions.expand([batch * heads, padded_length]),
            padding: (non_padding.is_some() || padded_length > length)
                .then(|| padding_mask(vectors, padded_length, non_padding)),
            hashes: 1,
            chunk,
            before,
            after,
        }
    }

    /// The length after padding.
    pub(in crate::attention) fn padded_length(&self) -> usize {
        self.positions.dims()[1] / self.hashes
    }

    /// Entries as `[rows, chunks, chunk]`.
    pub(in crate::attention) fn chunked<K: Basic>(&self, entries: Tensor<2, K>) -> Tensor<3, K> {
        let [rows, count] = entries.dims();
        let chunks = count / self.chunk;
        entries.reshape([rows, chunks, self.chunk])
    }

    /// Sorts vectors `[batch, heads, length, width]` into chunks, `[rows, chunks, chunk, width]`.
    pub(in crate::attention) fn sort(&self, vectors: Tensor<4>) -> Tensor<4> {
        let width = vectors.dims()[3];
        let [rows, entries] = self.positions.dims();
        let padded_length = self.padded_length();
        let vectors = pad(vectors, padded_length).reshape([rows * padded_length, width]);
        let vectors = vectors.select(0, flat_indices(self.positions.clone(), padded_length));
        let chunks = entries / self.chunk;
        vectors.reshape([rows, chunks, self.chunk, width])
    }

    /// Restores the order of the positions in sorted entries `[rows · entries, width]`: `[rows, hashes, padded_length, width]`.
    pub(in crate::attention) fn unsort(&self, sorted: Tensor<2>) -> Tensor<4> {
        let width = sorted.dims()[1];
        let (rows, padded_length) = (self.positions.dims()[0], self.padded_length());
        let positions = self.positions.clone();
        let positions = positions.reshape([rows * self.hashes, padded_length]);
        // The argsort of a permutation is its inverse.
        let inverse = flat_indices(positions.argsort(1), padded_length);
        sorted
            .select(0, inverse)
            .reshape([rows, self.hashes, padded_length, width])
    }

    /// Concatenates each chunk with its neighbours, along the axis after the chunks.
    pub(in crate::attention) fn look_adjacent<const D: usize, K: Basic>(
        &self,
        chunks: Tensor<D, K>,
    ) -> Tensor<D, K> {
        if self.before == 0 && self.after == 0 {
            return chunks;
        }
        let count = chunks.dims()[1];
        let rotated = |first: usize| {
            // A neighbour farther away than there are chunks is the chunk itself, as in the reference.
            if first == 0 || first >= count {
                return chunks.clone();
            }
            let parts = [(first, count - first), (0, first)];
            let parts = parts.map(|(start, length)| chunks.clone().narrow(1, start, length));
            Tensor::cat(parts.to_vec(), 1)
        };
        let before = (1..=self.before).rev();
        let mut neighbours: Vec<_> = before
            .map(|steps| rotated(count.saturating_sub(steps)))
            .collect();
        neighbours.extend((0..=self.after).map(rotated));
        Tensor::cat(neighbours, 2)
    }
}

/// Pads vectors with zeros at the end, up to `padded_length` positions.
pub(in crate::attention) fn pad(vectors: Tensor<4>, padded_length: usize) -> Tensor<4> {
    let [batch, heads, length, head_width] = vectors.dims();
    if length == padded_length {
        return vectors;
    }
    let zeros = Tensor::zeros(
        [batch, heads, padded_length - length, head_width],
        &vectors.device(),
    );
    Tensor::cat(vec![vectors, zeros], 2)
}

/// Indices into each row of `[rows, length]` as indices into the flattened tensor.
fn flat_indices(indices: Tensor<2, Int>, length: usize) -> Tensor<1, Int> {
    let [rows, count] = indices.dims();
    let starts = arange(rows, &indices.device()) * length as i64;
    (to_i64(indices) + starts.reshape([rows, 1])).reshape([rows * count])
}

/// The integers from zero on.
pub(in crate::attention) fn arange(count: usize, device: &Device) -> Tensor<1, Int> {
    to_i64(Tensor::arange(0..count as i64, device))
}

/// Integers of one type: burn's argmax, sort and arange return different ones.
pub(in crate::attention) fn to_i64<const D: usize>(x: Tensor<D, Int>) -> Tensor<D, Int> {
    x.cast(IntDType::I64)
}

/// Which positions of each row are padding, `[batch · heads, padded_length]`.
pub(in crate::attention) fn padding_mask(
    vectors: &Tensor<4>,
    padded_length: usize,
    non_padding: Option<&[Range<usize>]>,
) -> Tensor<2, Bool> {
    let [batch, heads, length, _] = vectors.dims();
    if let Some(non_padding) = non_padding {
        assert_eq!(
            non_padding.len(),
            batch,
            "attention in chunks: {} ranges of keys do not match vectors {:?}",
            non_padding.len(),
            vectors.dims()
        );
    }
    let is_padding = |row: usize, position: usize| {
        position >= length || non_padding.is_some_and(|it| !it[row].contains(&position))
    };
    let mask = (0..batch * heads)
        .flat_map(|row| (0..padded_length).map(move |position| (row / heads, position)))
        .map(|(row, position)| is_padding(row, position))
        .collect();
    Tensor::from_data(
        TensorData::new(mask, [batch * heads, padded_length]),
        &vectors.device(),
    )
}
