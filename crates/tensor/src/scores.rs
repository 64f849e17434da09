//! Attention scores: scaled dot products, plus a bias, masked.
//!
//! A bias per key or per distance needs memory linear in the length, not quadratic: ALiBi (Press et al. 2022) and the
//! relative position buckets of T5 (Raffel et al. 2020) are biases per distance.

use burn::tensor::{Int, Tensor, TensorData};

use crate::Mask;
use crate::exact_dims::ExactDims;

/// How scores are computed: `query · key · scale + bias` where the mask allows, minus infinity elsewhere.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Which keys each query may attend to.
    pub mask: Mask,
    /// Multiplies the products.
    pub scale: f64,
    /// Added to the scaled products. Minus infinity masks a pair.
    pub bias: Option<ScoreBias>,
}

/// A bias added to the scores.
#[derive(Clone, Debug)]
pub enum ScoreBias {
    /// Per pair, `[batch or 1, heads or 1, queries, keys]`.
    Pairs(Tensor<4>),
    /// Per key, the same for all queries, `[batch or 1, heads or 1, keys]`.
    Keys(Tensor<3>),
    /// Per distance, `[heads or 1, queries + keys - 1]`: query `i` and key `j` have the bias at `j - i + queries - 1`. (With no
    /// queries and no keys, there are no distances.)
    Distances(Tensor<2>),
}

impl ScoreBias {
    fn dims(&self) -> Vec<usize> {
        match self {
            Self::Pairs(bias) => bias.dims().to_vec(),
            Self::Keys(bias) => bias.dims().to_vec(),
            Self::Distances(bias) => bias.dims().to_vec(),
        }
    }

    fn fits(&self, batch: usize, heads: usize, queries: usize, keys: usize) -> bool {
        let broadcasts = |size: usize, full: usize| size == 1 || size == full;
        match self.dims()[..] {
            [b, h, rows, columns] => {
                broadcasts(b, batch) && broadcasts(h, heads) && [rows, columns] == [queries, keys]
            }
            [b, h, columns] => broadcasts(b, batch) && broadcasts(h, heads) && columns == keys,
            [h, distances] => {
                broadcasts(h, heads) && distances == (queries + keys).saturating_sub(1)
            }
            _ => unreachable!("a bias has two to four axes"),
        }
    }

    /// The bias of each pair, `[batch or 1, heads or 1, queries or 1, keys]`.
    fn per_pair(&self, queries: usize, keys: usize) -> Tensor<4> {
        match self {
            Self::Pairs(bias) => bias.clone(),
            Self::Keys(bias) => {
                let [batch, heads, keys] = bias.dims();
                bias.clone().reshape(ExactDims([batch, heads, 1, keys]))
            }
            Self::Distances(bias) => {
                let [heads, _] = bias.dims();
                let indices = (0..queries)
                    .flat_map(|query| (0..keys).map(move |key| (key + queries - 1 - query) as i64));
                let indices = TensorData::new(indices.collect::<Vec<_>>(), [queries * keys]);
                let indices = Tensor::<1, Int>::from_data(indices, &bias.device());
                let matrix = bias.clone().select(1, indices);
                matrix.reshape(ExactDims([1, heads, queries, keys]))
            }
        }
    }
}

impl Scores {
    /// Scores without a bias.
    pub fn new(mask: Mask, scale: f64) -> Self {
        Self {
            mask,
            scale,
            bias: None,
        }
    }

    /// Panics where the operands do not match each other.
    pub(crate) fn check(&self, operation: &str, query: &Tensor<4>, key: &Tensor<4>) {
        let [batch, heads, queries, head_width] = query.dims();
        let [key_batch, key_value_heads, keys, key_width] = key.dims();
        assert!(
            key_batch == batch
                && key_width == head_width
                && key_value_heads > 0
                && heads.is_multiple_of(key_value_heads),
            "{operation}: queries {:?} do not match keys {:?}",
            query.dims(),
            key.dims()
        );
        if let Some(ranges) = self.mask.keys() {
            assert_eq!(
                ranges.len(),
                batch,
                "{operation}: {} ranges of keys do not match queries {:?}",
                ranges.len(),
                query.dims()
            );
        }
        if let Some(blocks) = self.mask.blocks() {
            assert!(
                blocks.fits(heads, queries, keys),
                "{operation}: {} heads of blocks of {} do not match queries {:?} and keys {:?}",
                blocks.heads(),
                blocks.block_size(),
                query.dims(),
                key.dims()
            );
        }
        if let Some(bias) = &self.bias {
            assert!(
                bias.fits(batch, heads, queries, keys),
                "{operation}: bias {:?} does not match queries {:?} and keys {:?}",
                bias.dims(),
                query.dims(),
                key.dims()
            );
        }
    }

    /// The scores themselves, `[batch, heads, queries, keys]`: minus infinity where masked.
    ///
    /// # Panics
    /// When the shapes do not match each other or the mask.
    pub fn of(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        self.check("scores", &query, &key);
        self.composed(query, key)
    }

    /// The same, of operands that were checked.
    pub(crate) fn composed(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let [batch, heads, queries, head_width] = query.dims();
        let [_, key_value_heads, keys, _] = key.dims();
        let group = heads / key_value_heads;
        let products = (query * self.scale)
            .reshape(ExactDims([
                batch,
                key_value_heads,
                group * queries,
                head_width,
            ]))
            .matmul(key.swap_dims(2, 3))
            .reshape(ExactDims([batch, heads, queries, keys]));
        let products = match &self.bias {
            Some(bias) => products + bias.per_pair(queries, keys),
            None => products,
        };
        self.mask.apply(products)
    }
}
