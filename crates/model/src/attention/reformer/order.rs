//! The order of positions in chunks on a ring: as they are, or hashed, in rounds and buckets.

use std::ops::Range;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, IntDType, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::{refuse, size};

/// To which lengths sequences are filled up before they are cut, where it is more than whole chunks: layers with chunks of
/// several sizes may be filled up alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FillConfig {
    /// To a multiple of this, which is one of the chunk.
    pub multiple: usize,
    /// Sequences of at most this length are left as they are.
    pub beyond: usize,
}

impl FillConfig {
    /// Whether the settings can work with chunks of this size.
    pub(in crate::attention) fn validate(
        &self,
        path: &str,
        chunk: usize,
    ) -> Result<(), ConfigError> {
        size(&format!("{path}.multiple"), self.multiple)?;
        if !self.multiple.is_multiple_of(chunk) {
            return refuse(
                &format!("{path}.multiple"),
                format!("{} is no multiple of the chunk, {chunk}", self.multiple),
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

/// A length with what fills it up; one that a chunk holds is not cut.
pub(in crate::attention) fn padded(
    length: usize,
    chunk: usize,
    fill: Option<&FillConfig>,
) -> usize {
    let (multiple, beyond) = fill.map_or((chunk, chunk), |fill| (fill.multiple, fill.beyond));
    match length <= beyond {
        true => length,
        false => length.next_multiple_of(multiple),
    }
}

/// Refuses more neighbours than the longest sequence has chunks. What fits into one chunk is not cut, and looks at none.
pub(in crate::attention) fn check_neighbours(
    path: &str,
    length: usize,
    (chunk, fill): (usize, Option<&FillConfig>),
    [before, after]: [usize; 2],
) -> Result<(), ConfigError> {
    let whole = match length <= chunk {
        true => padded(length, chunk, fill),
        false => length,
    };
    let chunks = whole.div_ceil(chunk);
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

/// Where the positions of all rounds stand, and who looks at whom.
pub(in crate::attention) struct Order {
    /// The position of each entry, `[rows, rounds · padded]`, where a row is a head of a sequence.
    pub(in crate::attention) positions: Tensor<2, Int>,
    /// Which entries are padding, of the same shape.
    pub(in crate::attention) padding: Option<Tensor<2, Bool>>,
    pub(in crate::attention) rounds: usize,
    pub(in crate::attention) chunk: usize,
    pub(in crate::attention) before: usize,
    pub(in crate::attention) after: usize,
}

impl Order {
    /// Positions of vectors `[batch, heads, length, width]` as they are, filled up to `padded`.
    pub(in crate::attention) fn straight(
        vectors: &Tensor<4>,
        padded: usize,
        chunk: usize,
        [before, after]: [usize; 2],
        real: Option<&[Range<usize>]>,
    ) -> Self {
        let [batch, heads, length, _] = vectors.dims();
        let positions = counted(padded, &vectors.device()).unsqueeze::<2>();
        Self {
            positions: positions.expand([batch * heads, padded]),
            padding: (real.is_some() || padded > length).then(|| padding(vectors, padded, real)),
            rounds: 1,
            chunk,
            before,
            after,
        }
    }

    /// Positions with those that fill up the last chunk.
    pub(in crate::attention) fn padded(&self) -> usize {
        self.positions.dims()[1] / self.rounds
    }

    /// `[rows, chunks, chunk]` of entries.
    pub(in crate::attention) fn cut<K: Basic>(&self, entries: Tensor<2, K>) -> Tensor<3, K> {
        let [rows, count] = entries.dims();
        let chunks = count / self.chunk;
        entries.reshape([rows, chunks, self.chunk])
    }

    /// Vectors `[batch, heads, length, width]` as they stand in their chunks, `[rows, chunks, chunk, width]`.
    pub(in crate::attention) fn sorted(&self, vectors: Tensor<4>) -> Tensor<4> {
        let width = vectors.dims()[3];
        let [rows, entries] = self.positions.dims();
        let padded = self.padded();
        let vectors = with_padding(vectors, padded).reshape([rows * padded, width]);
        let vectors = vectors.select(0, in_rows(self.positions.clone(), padded));
        let chunks = entries / self.chunk;
        vectors.reshape([rows, chunks, self.chunk, width])
    }

    /// Numbers of sorted entries `[rows · entries, width]` by position again, `[rows, rounds, padded, width]`.
    pub(in crate::attention) fn unsorted(&self, sorted: Tensor<2>) -> Tensor<4> {
        let width = sorted.dims()[1];
        let (rows, padded) = (self.positions.dims()[0], self.padded());
        let positions = self.positions.clone();
        let positions = positions.reshape([rows * self.rounds, padded]);
        // What sorts a permutation undoes it.
        let back = in_rows(positions.argsort(1), padded);
        sorted
            .select(0, back)
            .reshape([rows, self.rounds, padded, width])
    }

    /// What each chunk sees: itself among its neighbours on the ring, joined along the axis after the chunks'.
    pub(in crate::attention) fn seen<const D: usize, K: Basic>(
        &self,
        chunks: Tensor<D, K>,
    ) -> Tensor<D, K> {
        if self.before == 0 && self.after == 0 {
            return chunks;
        }
        let count = chunks.dims()[1];
        let turned = |first: usize| {
            // A neighbour farther away than the ring is long is the chunk itself, as in the reference.
            if first == 0 || first >= count {
                return chunks.clone();
            }
            let parts = [(first, count - first), (0, first)];
            let parts = parts.map(|(start, length)| chunks.clone().narrow(1, start, length));
            Tensor::cat(parts.to_vec(), 1)
        };
        let before = (1..=self.before).rev();
        let mut neighbours: Vec<_> = before
            .map(|steps| turned(count.saturating_sub(steps)))
            .collect();
        neighbours.extend((0..=self.after).map(turned));
        Tensor::cat(neighbours, 2)
    }
}

/// Zeros behind the vectors, up to `padded` positions.
pub(in crate::attention) fn with_padding(vectors: Tensor<4>, padded: usize) -> Tensor<4> {
    let [batch, heads, length, head_width] = vectors.dims();
    if length == padded {
        return vectors;
    }
    let zeros = Tensor::zeros(
        [batch, heads, padded - length, head_width],
        &vectors.device(),
    );
    Tensor::cat(vec![vectors, zeros], 2)
}

/// Indices into the rows of `[rows, length]` as indices into all of it.
fn in_rows(indices: Tensor<2, Int>, length: usize) -> Tensor<1, Int> {
    let [rows, count] = indices.dims();
    let starts = counted(rows, &indices.device()) * length as i64;
    (whole(indices) + starts.reshape([rows, 1])).reshape([rows * count])
}

/// The numbers from zero on.
pub(in crate::attention) fn counted(count: usize, device: &Device) -> Tensor<1, Int> {
    whole(Tensor::arange(0..count as i64, device))
}

/// Integers in one type: burn's searches, sorts and ranges give different ones.
pub(in crate::attention) fn whole<const D: usize>(x: Tensor<D, Int>) -> Tensor<D, Int> {
    x.cast(IntDType::I64)
}

/// Which positions of each row are padding, `[batch · heads, padded]`.
pub(in crate::attention) fn padding(
    vectors: &Tensor<4>,
    padded: usize,
    real: Option<&[Range<usize>]>,
) -> Tensor<2, Bool> {
    let [batch, heads, length, _] = vectors.dims();
    if let Some(real) = real {
        assert_eq!(
            real.len(),
            batch,
            "attention in chunks: {} ranges of keys do not fit vectors {:?}",
            real.len(),
            vectors.dims()
        );
    }
    let is_padding = |row: usize, position: usize| {
        position >= length || real.is_some_and(|real| !real[row].contains(&position))
    };
    let all = (0..batch * heads)
        .flat_map(|row| (0..padded).map(move |position| (row / heads, position)))
        .map(|(row, position)| is_padding(row, position))
        .collect();
    Tensor::from_data(
        TensorData::new(all, [batch * heads, padded]),
        &vectors.device(),
    )
}
