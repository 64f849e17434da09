//! Numbers added to the scores: of every pair, of every key, or of every distance between the two. The last two stay small
//! where a matrix of pairs would grow with the square of the length (ALiBi: Press et al. 2022; T5: Raffel et al. 2020).
//!
//! ```text
//!            Pairs            Keys             Distances
//! query 0    a b c d          a b c d            c d e f      Each row is a slice of the numbers; of distances,
//! query 1    e f g h          a b c d          b c d e        a slice that begins one earlier for each query.
//! query 2    i j k l          a b c d        a b c d
//! ```

use super::Shape;

/// What the numbers of a bias belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BiasOf {
    /// Pairs of a query and a key: `[queries, keys]`.
    #[default]
    Pairs,
    /// Keys: the same row for every query.
    Keys,
    /// Distances: `queries + keys - 1` numbers, of which query `i` and key `j` have number `j - i + queries - 1`.
    Distances,
}

impl BiasOf {
    /// How many numbers one head has.
    pub fn size(self, shape: &Shape) -> usize {
        match self {
            Self::Pairs => shape.queries * shape.keys,
            Self::Keys => shape.keys,
            Self::Distances => (shape.queries + shape.keys).saturating_sub(1),
        }
    }

    /// Where the row of a query begins among the numbers of its head.
    #[inline(always)]
    pub(super) fn start(self, shape: &Shape, query: usize) -> usize {
        match self {
            Self::Pairs => query * shape.keys,
            Self::Keys => 0,
            Self::Distances => shape.queries - 1 - query,
        }
    }
}

/// Numbers added to the scores; a stride of zero repeats them.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'a> {
    /// The numbers of one head follow each other.
    pub data: &'a [f32],
    /// What they belong to.
    pub of: BiasOf,
    /// From a sequence to the next.
    pub batch_stride: usize,
    /// From a head to the next.
    pub head_stride: usize,
}

impl<'a> Bias<'a> {
    /// The numbers of a query, for `count` keys from `from` on.
    #[inline(always)]
    pub(super) fn row(
        &self,
        shape: &Shape,
        [batch, head, query]: [usize; 3],
        from: usize,
        count: usize,
    ) -> &'a [f32] {
        let head = batch * self.batch_stride + head * self.head_stride;
        let start = head + self.of.start(shape, query) + from;
        &self.data[start..start + count]
    }
}
