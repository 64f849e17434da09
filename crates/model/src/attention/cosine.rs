//! Cosine attention, also called query-key normalization: the scores are cosine similarities times a learned factor per head.
//! Henry et al. 2020.
//!
//! `output = softmax(factor · (q / |q|) · (k / |k|)) · v`, so the scores are bounded by the factor however large queries and
//! keys grow.

use attentive_tensor::Scores;
use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::heads::with_heads;
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{Attention, AttentionSettings, AttentionSpec, Pattern};
use crate::checks::refuse;
use crate::setters;
use crate::{ConfigError, Initializer};

/// Added to squared norms, so that the gradient at a zero vector is finite.
const EPSILON: f64 = 1e-12;

with_heads! {
    /// Settings of cosine attention.
    pub struct CosineConfig {
        /// The initial factor of all heads.
        #[serde(default = "ten")]
        pub factor: f64,
    }

    /// `heads` heads.
    new() { factor: ten() }
}

impl CosineConfig {
    setters! {
        with_factor(factor: f64);
    }
}

fn ten() -> f64 {
    10.0
}

impl AttentionSettings for CosineConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        if !(1e-3..=1e3).contains(&self.factor) {
            return refuse(
                &format!("{path}.factor"),
                format!("{} is out of range; use 0.001 to 1000", self.factor),
            );
        }
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let log_factor = initializer.constant([self.heads], self.factor.ln() as f32);
        let pattern = Pattern::Cosine(Cosine { log_factor });
        self.heads_config().build(pattern, spec, initializer)
    }

    fn describe(&self, width: usize) -> String {
        self.heads_config().describe("cosine attention", width)
    }
}

/// Softmax of cosine similarities.
#[derive(Module, Debug)]
pub struct Cosine {
    /// `[heads]`; the logarithm keeps the factor positive.
    log_factor: Param<Tensor<1>>,
}

impl Cosine {
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let qkv = Qkv {
            query: unit_vectors(qkv.query),
            key: unit_vectors(qkv.key),
            value: qkv.value,
        };
        let (mut qkv, evicted) = context.append_to_cache(qkv, None);
        let factors = self.log_factor.val().exp();
        let count = factors.dims()[0];
        qkv.query = qkv.query * factors.reshape([1, count, 1, 1]);
        let scores = Scores {
            bias: context.bias(&qkv),
            ..Scores::new(context.mask(evicted), 1.0)
        };
        context.attend(qkv, &scores)
    }
}

/// Each vector divided by its norm.
fn unit_vectors(x: Tensor<4>) -> Tensor<4> {
    let squares = (x.clone() * x.clone()).sum_dim(3);
    x / (squares + EPSILON).sqrt()
}
