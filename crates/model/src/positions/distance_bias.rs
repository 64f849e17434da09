//! A bias on the scores that depends on nothing but how far the key stands from the query.

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{T5BucketsConfig, alibi_slopes};

/// What makes the bias. Only an attention layer knows how many keys its cache holds, so it asks with both numbers.
#[derive(Clone, Debug)]
pub struct DistanceBias {
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

impl DistanceBias {
    /// The bias of ALiBi for so many heads. Press et al. 2022.
    pub fn alibi(heads: usize, device: &Device) -> Self {
        Self {
            source: Source::Slopes(alibi_slopes(heads)),
            device: device.clone(),
        }
    }

    /// The bias of T5 by its table `[buckets, heads]`. Raffel et al. 2020.
    ///
    /// # Panics
    /// When the table has not as many rows as there are buckets.
    pub fn t5_buckets(config: &T5BucketsConfig, table: Tensor<2>) -> Self {
        assert_eq!(
            table.dims()[0],
            config.buckets,
            "t5_buckets: table {:?} does not fit {} buckets",
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
    ///  query 0 (at 3)    1 2 3 4 5         the entries that each pair takes, of 0 to 5;
    ///  query 1 (at 4)    0 1 2 3 4         entry 4 is distance zero, entry 0 the furthest back
    /// ```
    pub fn distances(&self, queries: usize, keys: usize) -> Tensor<2> {
        let entries = (queries + keys).saturating_sub(1);
        // How far the key stands ahead of the query; below zero where it is behind.
        let ahead = |entry: usize| entry as i64 + 1 - keys as i64;
        match &self.source {
            // Keys ahead, which only bidirectional attention sees, are as far as those behind.
            Source::Slopes(slopes) => {
                let row = |slope: &f32| {
                    let slope = -slope;
                    (0..entries).map(move |entry| slope * ahead(entry).unsigned_abs() as f32)
                };
                let numbers: Vec<f32> = slopes.iter().flat_map(row).collect();
                Tensor::from_data(
                    TensorData::new(numbers, [slopes.len(), entries]),
                    &self.device,
                )
            }
            Source::Buckets { table, config } => {
                let buckets: Vec<i64> = (0..entries)
                    .map(|entry| config.bucket(ahead(entry)) as i64)
                    .collect();
                let buckets =
                    Tensor::<1, Int>::from_data(TensorData::new(buckets, [entries]), &self.device);
                table.clone().select(0, buckets).transpose()
            }
        }
    }

    /// The same biases for each pair, `[1, heads, queries, keys]`: the specification, and for mechanisms that need a matrix.
    pub fn pairs(&self, queries: usize, keys: usize) -> Tensor<4> {
        let distances = self.distances(queries, keys);
        let [heads, _] = distances.dims();
        let entries: Vec<i64> = (0..queries)
            .flat_map(|i| (0..keys).map(move |j| (j + queries - 1 - i) as i64))
            .collect();
        let entries =
            Tensor::<1, Int>::from_data(TensorData::new(entries, [queries * keys]), &self.device);
        distances
            .select(1, entries)
            .reshape([1, heads, queries, keys])
    }
}
