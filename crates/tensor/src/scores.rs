//! Scores of queries and keys: scaled products, a bias, and what the mask leaves of them.
//!
//! A bias of keys or of distances stays as small as the length where a matrix of pairs grows with its square: ALiBi (Press
//! et al. 2022) and the buckets of T5 (Raffel et al. 2020) are biases of distances.

use burn::tensor::{Int, Tensor, TensorData};

use crate::Mask;
use crate::exactly::Exactly;

/// How scores are made of queries and keys: `query · key · scale + bias`, where the mask allows.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Who may attend to whom.
    pub mask: Mask,
    /// Multiplies the products.
    pub scale: f64,
    /// Added to the scaled products. Minus infinity forbids a pair.
    pub bias: Option<ScoreBias>,
}

/// Numbers added to the scores.
#[derive(Clone, Debug)]
pub enum ScoreBias {
    /// One of each pair, `[batch or 1, heads or 1, queries, keys]`.
    Pairs(Tensor<4>),
    /// One of each key, the same for all queries, `[batch or 1, heads or 1, keys]`.
    Keys(Tensor<3>),
    /// One of each distance, `[heads or 1, queries + keys - 1]`: the number of query `i` and key `j`, counted from the first
    /// query and the first key, is `j - i + queries - 1`. (Of no queries and no keys, there are no distances.)
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
        let repeats = |size: usize, whole: usize| size == 1 || size == whole;
        match self.dims()[..] {
            [b, h, rows, columns] => {
                repeats(b, batch) && repeats(h, heads) && [rows, columns] == [queries, keys]
            }
            [b, h, columns] => repeats(b, batch) && repeats(h, heads) && columns == keys,
            [h, distances] => repeats(h, heads) && distances == (queries + keys).saturating_sub(1),
            _ => unreachable!("a bias has two to four axes"),
        }
    }

    /// The number of each pair, `[batch or 1, heads or 1, queries or 1, keys]`.
    fn of_pairs(&self, queries: usize, keys: usize) -> Tensor<4> {
        match self {
            Self::Pairs(bias) => bias.clone(),
            Self::Keys(bias) => {
                let [batch, heads, keys] = bias.dims();
                bias.clone().reshape(Exactly([batch, heads, 1, keys]))
            }
            Self::Distances(bias) => {
                let [heads, _] = bias.dims();
                let places = (0..queries)
                    .flat_map(|query| (0..keys).map(move |key| (key + queries - 1 - query) as i64));
                let places = TensorData::new(places.collect::<Vec<_>>(), [queries * keys]);
                let places = Tensor::<1, Int>::from_data(places, &bias.device());
                let matrix = bias.clone().select(1, places);
                matrix.reshape(Exactly([1, heads, queries, keys]))
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

    /// Panics where the operands do not fit each other.
    pub(crate) fn check(&self, operation: &str, query: &Tensor<4>, key: &Tensor<4>) {
        let [batch, heads, queries, head_width] = query.dims();
        let [key_batch, key_value_heads, keys, key_width] = key.dims();
        assert!(
            key_batch == batch
                && key_width == head_width
                && key_value_heads > 0
                && heads.is_multiple_of(key_value_heads),
            "{operation}: queries {:?} do not fit keys {:?}",
            query.dims(),
            key.dims()
        );
        if let Some(ranges) = self.mask.keys() {
            assert_eq!(
                ranges.len(),
                batch,
                "{operation}: {} ranges of keys do not fit queries {:?}",
                ranges.len(),
                query.dims()
            );
        }
        if let Some(blocks) = self.mask.blocks() {
            assert!(
                blocks.fits(heads, queries, keys),
                "{operation}: {} heads of blocks of {} do not fit queries {:?} and keys {:?}",
                blocks.heads(),
                blocks.block(),
                query.dims(),
                key.dims()
            );
        }
        if let Some(bias) = &self.bias {
            assert!(
                bias.fits(batch, heads, queries, keys),
                "{operation}: bias {:?} does not fit queries {:?} and keys {:?}",
                bias.dims(),
                query.dims(),
                key.dims()
            );
        }
    }

    /// The scores themselves, `[batch, heads, queries, keys]`: minus infinity where nothing may be seen.
    ///
    /// # Panics
    /// When the shapes do not fit each other or the mask.
    pub fn of(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        self.check("scores", &query, &key);
        self.composed(query, key)
    }

    /// The same of operands that were found to fit.
    pub(crate) fn composed(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let [batch, heads, queries, head_width] = query.dims();
        let [_, key_value_heads, keys, _] = key.dims();
        let group = heads / key_value_heads;
        let products = (query * self.scale)
            .reshape(Exactly([
                batch,
                key_value_heads,
                group * queries,
                head_width,
            ]))
            .matmul(key.swap_dims(2, 3))
            .reshape(Exactly([batch, heads, queries, keys]));
        let products = match &self.bias {
            Some(bias) => products + bias.of_pairs(queries, keys),
            None => products,
        };
        self.mask.hide(products)
    }
}
