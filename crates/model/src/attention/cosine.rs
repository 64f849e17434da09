//! Cosine attention: queries and keys are compared by their angle alone, and a learned factor per head says how sharply. Henry
//! et al. 2020.
//!
//! `output = softmax(factor · (q / |q|) · (k / |k|)) · v`, whose scores stay within the factor however large queries and keys
//! grow.

use attentive_tensor::Scores;
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::heads::with_heads;
use super::pattern::{Call, Context, Projected};
use super::{Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place};
use crate::checks::refuse;
use crate::{ConfigError, Initializer, Operations};

/// Added to squares of lengths, so that a vector of zeros has a direction with a slope.
const TINY: f64 = 1e-12;

with_heads! {
    /// Settings of cosine attention.
    pub struct CosineConfig {
        /// The factor of all heads before training.
        #[serde(default = "ten")]
        pub factor: f64,
    }
}

fn ten() -> f64 {
    10.0
}

impl AttentionSettings for CosineConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        if !(1e-3..=1e3).contains(&self.factor) {
            return refuse(
                &format!("{path}.factor"),
                format!("{} is out of range; use 0.001 to 1000", self.factor),
            );
        }
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let log_factor = initial.constant([self.heads], self.factor.ln() as f32);
        let pattern = Pattern::Cosine(Cosine { log_factor });
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        // On average a query meets half of the positions.
        self.shared().operations(width, (length as u64).div_ceil(2))
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Growing(self.shared().key_value_numbers(width))
    }

    fn describe(&self, width: usize) -> String {
        self.shared().describe("cosine attention", width)
    }
}

/// Softmax of cosines.
#[derive(Module, Debug)]
pub struct Cosine {
    /// `[heads]`: a logarithm, so that the factor stays positive
    log_factor: Param<Tensor<1>>,
}

impl Cosine {
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let heads = Projected {
            query: direction(heads.query),
            key: direction(heads.key),
            value: heads.value,
        };
        let (mut heads, dropped) = call.remember(heads, None);
        let factors = self.log_factor.val().exp();
        let count = factors.dims()[0];
        heads.query = heads.query * factors.reshape([1, count, 1, 1]);
        let scores = Scores {
            bias: call.bias(&heads),
            ..Scores::new(call.mask(dropped), 1.0)
        };
        call.attend(heads, &scores)
    }
}

/// Each vector divided by its length.
fn direction(x: Tensor<4>) -> Tensor<4> {
    let squares = (x.clone() * x.clone()).sum_dim(3);
    x / (squares + TINY).sqrt()
}
