//! T5's relative position bias: small distances have a bucket each, larger ones share logarithmic buckets, and each head learns a
//! bias per bucket. Raffel et al. 2020.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::{refuse, within};
use crate::setters;

/// Settings of T5's buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct T5BucketsConfig {
    /// The number of buckets.
    #[serde(default = "default_buckets")]
    pub buckets: usize,
    /// Distances from this one on share the last bucket.
    #[serde(default = "default_max_distance")]
    pub max_distance: usize,
    /// Whether later keys have buckets.
    #[serde(default = "causal")]
    pub direction: BucketDirection,
}

/// Whether later keys have buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BucketDirection {
    /// Only earlier keys have buckets; later ones share the bucket of distance zero. For decoders.
    Causal,
    /// Half of the buckets are for later keys. For encoders.
    Bidirectional,
}

fn default_buckets() -> usize {
    32
}

fn default_max_distance() -> usize {
    128
}

fn causal() -> BucketDirection {
    BucketDirection::Causal
}

impl Default for T5BucketsConfig {
    fn default() -> Self {
        Self {
            buckets: default_buckets(),
            max_distance: default_max_distance(),
            direction: causal(),
        }
    }
}

/// Far beyond what helps.
const MAX_BUCKETS: usize = 1 << 20;

impl T5BucketsConfig {
    setters! {
        with_buckets(buckets: usize);
        with_max_distance(max_distance: usize);
        with_direction(direction: BucketDirection);
    }

    /// Whether the settings are valid; `path` is the config's path for error messages.
    pub(super) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        let (sides, buckets) = (self.sides(), self.buckets);
        if !(2 * sides..=MAX_BUCKETS).contains(&buckets) || !buckets.is_multiple_of(sides) {
            let even = if sides == 2 {
                "an even number from "
            } else {
                ""
            };
            return refuse(
                &format!("{path}.buckets"),
                format!(
                    "{buckets} is out of range; use {even}{} to {MAX_BUCKETS}",
                    2 * sides
                ),
            );
        }
        let (max_distance, exact) = (self.max_distance, self.exact_buckets());
        let field = format!("{path}.max_distance");
        within(&field, max_distance, i32::MAX as usize)?;
        if max_distance <= exact {
            return refuse(
                &field,
                format!(
                    "{max_distance} is out of range; use more than {exact}, the number of distances with their own bucket"
                ),
            );
        }
        Ok(())
    }

    /// The bucket of a key at `offset` from its query, negative for earlier keys.
    ///
    /// In f32 as in Hugging Face: if the exact logarithm is an integer, rounding decides.
    pub fn bucket(&self, offset: i64) -> usize {
        let (per_side, exact) = (self.buckets_per_side(), self.exact_buckets());
        let (start, distance) = match self.direction {
            BucketDirection::Causal => (0, offset.min(0).unsigned_abs()),
            BucketDirection::Bidirectional => {
                let start = if offset > 0 { per_side } else { 0 };
                (start, offset.unsigned_abs())
            }
        };
        if distance < exact as u64 {
            return start + distance as usize;
        }
        let range = (self.max_distance as f64 / exact as f64).ln() as f32;
        let fraction = (distance as f32 / exact as f32).ln() / range;
        let bucket = exact + (fraction * (per_side - exact) as f32) as usize;
        start + bucket.min(per_side - 1)
    }

    fn sides(&self) -> usize {
        match self.direction {
            BucketDirection::Causal => 1,
            BucketDirection::Bidirectional => 2,
        }
    }

    fn buckets_per_side(&self) -> usize {
        self.buckets / self.sides()
    }

    /// The number of distances with their own bucket, on each side.
    fn exact_buckets(&self) -> usize {
        self.buckets_per_side() / 2
    }
}
