//! A relative position bias: a bias on attention scores that depends only on the distance of query and key.

use burn::tensor::{Device, Tensor, TensorData};

use super::{T5BucketsConfig, alibi_slopes};
use crate::indices::indices;

/// A relative position bias for any numbers of queries and keys: only an attention layer knows how many keys are cached.
#[derive(Clone, Debug)]
pub struct RelativePositionBias {
    source: Source,
    device: Device,
}

#[derive(Clone, Debug)]
enum Source {
    /// ALiBi: a slope per head.
    Slopes(Vec<f32>),
    /// T5: a learned table `[buckets, heads]`.
    Buckets {
        table: Tensor<2>,
        config: T5BucketsConfig,
    },
}

impl RelativePositionBias {
    /// The bias of ALiBi. Press et al. 2022.
    pub fn alibi(heads: usize, device: &Device) -> Self {
        Self {
            source: Source::Slopes(alibi_slopes(heads)),
            device: device.clone(),
        }
    }

    /// The bias of T5 with its table `[buckets, heads]`. Raffel et al. 2020.
    ///
    /// # Panics
    /// When the table's number of rows is not the number of buckets.
    pub fn t5_buckets(config: &T5BucketsConfig, table: Tensor<2>) -> Self {
        assert_eq!(
            table.dims()[0],
            config.buckets,
            "t5_buckets: table {:?} does not match {} buckets",
            table.dims(),
            config.buckets
        );
        Self {
            device: table.device(),
            source: Source::Buckets {
                table,
                config: config.clone(),
            },
        }
    }

    /// The biases `[heads, queries + keys - 1]`: entry `j - i + queries - 1` is that of key `j` and query `i`, where the
    /// queries are the last of the keys' positions.
    ///
    /// ```text
    ///              key   0 1 2 3 4         5 keys, 2 queries, at positions 3 and 4:
    ///  query 0 (at 3)    1 2 3 4 5         the entry of each pair, of 0 to 5;
    ///  query 1 (at 4)    0 1 2 3 4         entry 4 is distance zero, entry 0 the earliest key
    /// ```
    pub fn distances(&self, queries: usize, keys: usize) -> Tensor<2> {
        let entries = (queries + keys).saturating_sub(1);
        // The position of the key relative to the query, negative for earlier keys.
        let offset = |entry: usize| entry as i64 + 1 - keys as i64;
        match &self.source {
            // Later keys, which only bidirectional attention sees, count like earlier ones.
            Source::Slopes(slopes) => {
                let row = |slope: &f32| {
                    let slope = -slope;
                    (0..entries).map(move |entry| slope * offset(entry).unsigned_abs() as f32)
                };
                let biases: Vec<f32> = slopes.iter().flat_map(row).collect();
                Tensor::from_data(
                    TensorData::new(biases, [slopes.len(), entries]),
                    &self.device,
                )
            }
            Source::Buckets { table, config } => {
                let buckets = (0..entries).map(|entry| config.bucket(offset(entry)));
                let buckets = indices(buckets, &self.device);
                table.clone().select(0, buckets).transpose()
            }
        }
    }
}
