//! Biases added to the scores: per pair, per key, or per distance. The last two stay small where a bias per pair would grow
//! with the square of the length (ALiBi: Press et al. 2022; T5: Raffel et al. 2020).
//!
//! ```text
//!            PerPair          PerKey           PerDistance
//! query 0    a b c d          a b c d            c d e f      Each query's row is a slice of the data; per distance, it
//! query 1    e f g h          a b c d          b c d e        starts one element earlier for each query.
//! query 2    i j k l          a b c d        a b c d
//! ```

use super::Shape;

/// How the elements of a bias are indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BiasLayout {
    /// By query and key: `[queries, keys]`.
    #[default]
    PerPair,
    /// By key: the same row for every query.
    PerKey,
    /// By distance: `queries + keys - 1` elements; query `i` and key `j` read element `j - i + queries - 1`.
    PerDistance,
}

impl BiasLayout {
    /// Elements of one head.
    pub fn head_len(self, shape: &Shape) -> usize {
        match self {
            Self::PerPair => shape.queries * shape.keys,
            Self::PerKey => shape.keys,
            Self::PerDistance => (shape.queries + shape.keys).saturating_sub(1),
        }
    }

    /// Offset of a query's row in the elements of its head.
    #[inline(always)]
    pub(super) fn row_start(self, shape: &Shape, query: usize) -> usize {
        match self {
            Self::PerPair => query * shape.keys,
            Self::PerKey => 0,
            Self::PerDistance => shape.queries - 1 - query,
        }
    }
}

/// A bias added to the scores; a stride of zero broadcasts it.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'a> {
    /// The elements; those of one head are contiguous.
    pub data: &'a [f32],
    /// How they are indexed.
    pub layout: BiasLayout,
    /// Stride between sequences.
    pub batch_stride: usize,
    /// Stride between heads.
    pub head_stride: usize,
}

impl<'a> Bias<'a> {
    /// The biases of a query for `count` keys from `from` on.
    #[inline(always)]
    pub(super) fn row(
        &self,
        shape: &Shape,
        [batch, head, query]: [usize; 3],
        from: usize,
        count: usize,
    ) -> &'a [f32] {
        let head = batch * self.batch_stride + head * self.head_stride;
        let start = head + self.layout.row_start(shape, query) + from;
        &self.data[start..start + count]
    }
}
