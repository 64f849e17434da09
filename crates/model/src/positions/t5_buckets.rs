//! T5's relative positions: near distances have a bucket each, further ones share buckets that grow with the logarithm, and
//! each head learns a bias per bucket. Raffel et al. 2020.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::{refuse, within};

/// Settings of T5's buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct T5BucketsConfig {
    /// How many buckets there are.
    #[serde(default = "default_buckets")]
    pub buckets: usize,
    /// From this distance on, all share the last bucket.
    #[serde(default = "default_furthest")]
    pub furthest_distance: usize,
    /// Which keys have buckets.
    #[serde(default = "causal")]
    pub direction: BucketDirection,
}

/// Which keys have buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BucketDirection {
    /// Only those behind the query; those ahead share the bucket of distance zero. For decoders.
    Causal,
    /// Half of the buckets are for keys behind and at the query, half for keys ahead. For encoders.
    Bidirectional,
}

fn default_buckets() -> usize {
    32
}

fn default_furthest() -> usize {
    128
}

fn causal() -> BucketDirection {
    BucketDirection::Causal
}

impl Default for T5BucketsConfig {
    fn default() -> Self {
        Self {
            buckets: default_buckets(),
            furthest_distance: default_furthest(),
            direction: causal(),
        }
    }
}

/// Far above all use; the table stays small.
const MOST_BUCKETS: usize = 1 << 20;

impl T5BucketsConfig {
    /// Whether the settings can work; `path` is where they stand.
    pub(super) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        let (sides, buckets) = (self.sides(), self.buckets);
        if !(2 * sides..=MOST_BUCKETS).contains(&buckets) || !buckets.is_multiple_of(sides) {
            let even = if sides == 2 {
                "an even number from "
            } else {
                ""
            };
            return refuse(
                &format!("{path}.buckets"),
                format!(
                    "{buckets} is out of range; use {even}{} to {MOST_BUCKETS}",
                    2 * sides
                ),
            );
        }
        let (furthest, exact) = (self.furthest_distance, self.exact());
        let field = format!("{path}.furthest_distance");
        within(&field, furthest, i32::MAX as usize)?;
        if furthest <= exact {
            return refuse(
                &field,
                format!(
                    "{furthest} is out of range; use more than {exact}, the distances that have a bucket of their own"
                ),
            );
        }
        Ok(())
    }

    /// The bucket of a key that stands `ahead` of its query; behind it where that is below zero.
    ///
    /// In f32, as Hugging Face computes it: where a logarithm is a whole number in exact arithmetic, rounding decides.
    pub fn bucket(&self, ahead: i64) -> usize {
        let (each, exact) = (self.each_side(), self.exact());
        let (start, distance) = match self.direction {
            BucketDirection::Causal => (0, ahead.min(0).unsigned_abs()),
            BucketDirection::Bidirectional => {
                let start = if ahead > 0 { each } else { 0 };
                (start, ahead.unsigned_abs())
            }
        };
        if distance < exact as u64 {
            return start + distance as usize;
        }
        let range = (self.furthest_distance as f64 / exact as f64).ln() as f32;
        let part = (distance as f32 / exact as f32).ln() / range;
        let further = exact + (part * (each - exact) as f32) as usize;
        start + further.min(each - 1)
    }

    fn sides(&self) -> usize {
        match self.direction {
            BucketDirection::Causal => 1,
            BucketDirection::Bidirectional => 2,
        }
    }

    fn each_side(&self) -> usize {
        self.buckets / self.sides()
    }

    /// How many distances have a bucket of their own.
    fn exact(&self) -> usize {
        self.each_side() / 2
    }
}
