//! The order of hashed positions: in rounds, buckets and chunks on a ring.

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, IntDType, Tensor};

/// Where the positions of all rounds stand, and who looks at whom.
pub(super) struct Order {
    /// The position of each entry, `[rows, rounds · padded]`, where a row is a head of a sequence.
    pub(super) positions: Tensor<2, Int>,
    /// Which entries are padding, of the same shape.
    pub(super) padding: Option<Tensor<2, Bool>>,
    pub(super) rounds: usize,
    pub(super) chunk: usize,
    pub(super) before: usize,
    pub(super) after: usize,
}

impl Order {
    /// Positions with those that fill up the last chunk.
    pub(super) fn padded(&self) -> usize {
        self.positions.dims()[1] / self.rounds
    }

    /// `[rows, chunks, chunk]` of entries.
    pub(super) fn cut<K: Basic>(&self, entries: Tensor<2, K>) -> Tensor<3, K> {
        let [rows, count] = entries.dims();
        let chunks = count / self.chunk;
        entries.reshape([rows, chunks, self.chunk])
    }

    /// Vectors `[batch, heads, length, width]` as they stand in their chunks, `[rows, chunks, chunk, width]`.
    pub(super) fn sorted(&self, vectors: Tensor<4>) -> Tensor<4> {
        let width = vectors.dims()[3];
        let [rows, entries] = self.positions.dims();
        let padded = self.padded();
        let vectors = with_padding(vectors, padded).reshape([rows * padded, width]);
        let vectors = vectors.select(0, in_rows(self.positions.clone(), padded));
        let chunks = entries / self.chunk;
        vectors.reshape([rows, chunks, self.chunk, width])
    }

    /// Numbers of sorted entries `[rows · entries, width]` by position again, `[rows, rounds, padded, width]`.
    pub(super) fn unsorted(&self, sorted: Tensor<2>) -> Tensor<4> {
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
    pub(super) fn seen<const D: usize, K: Basic>(&self, chunks: Tensor<D, K>) -> Tensor<D, K> {
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
pub(super) fn with_padding(vectors: Tensor<4>, padded: usize) -> Tensor<4> {
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
pub(super) fn counted(count: usize, device: &Device) -> Tensor<1, Int> {
    whole(Tensor::arange(0..count as i64, device))
}

/// Integers in one type: burn's searches, sorts and ranges give different ones.
pub(super) fn whole<const D: usize>(x: Tensor<D, Int>) -> Tensor<D, Int> {
    x.cast(IntDType::I64)
}
