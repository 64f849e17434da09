//! Differential attention: the difference of two softmax maps, in which the noise that both have in common cancels.
//! Ye et al. 2024, with λ shared by the heads of a layer, as in their code.
//!
//! ```text
//! maps      A1 = softmax(q1 · k1 / √d)        A2 = softmax(q2 · k2 / √d)
//! output    (1 - λ_init) · RMSNorm((A1 - λ A2) · [v1 v2])
//! λ         exp(λ_q1 · λ_k1) - exp(λ_q2 · λ_k2) + λ_init
//! ```
//!
//! A head of the paper is a pair of neighbouring heads of the settings: each of the two has its own map, and both read the values
//! of the pair. An observer sees the maps, which are distributions over the keys; their difference is none.

use attentive::model::ConfigError;
use attentive::model::attention::{
    self, CustomPattern, PatternInput, PatternOutput, PatternParameter, PatternParameters,
    PatternSpec, Qkv, RegisterError, RelativePositions,
};
use attentive::tensor::{NormKind, NormParameters, Scores, Tensor, norm};
use serde::Deserialize;

/// The settings besides those of the heads: `{ kind = "differential", heads = 4, lambda_init = 0.5 }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differential {
    /// What λ is at first, about. The paper increases it with the depth of the layer, from 0.2 to 0.8.
    #[serde(default = "default_lambda_init")]
    lambda_init: f64,
}

fn default_lambda_init() -> f64 {
    0.8
}

/// Registers the kind. Settings with it can be read from then on.
pub fn register() -> Result<(), RegisterError> {
    attention::register("differential", |settings| settings.parse::<Differential>())
}

impl CustomPattern for Differential {
    fn validate(&self, spec: &PatternSpec) -> Result<(), ConfigError> {
        let refuse = |field: &str, problem: String| {
            Err(ConfigError {
                field: field.to_owned(),
                problem,
            })
        };
        if !(0.0..1.0).contains(&self.lambda_init) {
            let lambda = self.lambda_init;
            return refuse(
                "lambda_init",
                format!("{lambda} is out of range; use 0 or more and less than 1"),
            );
        }
        for (field, heads) in [
            ("heads", spec.heads),
            ("key_value_heads", spec.key_value_heads),
        ] {
            if !heads.is_multiple_of(2) {
                return refuse(
                    field,
                    format!("differential attention pairs its {heads} heads; use an even number"),
                );
            }
        }
        Ok(())
    }

    fn parameters(&self, spec: &PatternSpec) -> Vec<PatternParameter> {
        let width = spec.head_width;
        let lambda = |name: &str| PatternParameter::normal(name, [width], 0.1);
        vec![
            lambda("lambda_query_1"),
            lambda("lambda_key_1"),
            lambda("lambda_query_2"),
            lambda("lambda_key_2"),
            PatternParameter::constant("norm", [2 * width], 1.0),
        ]
    }

    fn positions(&self) -> &[RelativePositions] {
        &[RelativePositions::Rotary, RelativePositions::Bias]
    }

    fn flops(&self, heads: usize, head_width: usize, keys: u64) -> u64 {
        // Scores of each head, and weighted sums of values that are twice as wide.
        let inner = heads as u64 * head_width as u64;
        (6 * inner).saturating_mul(keys)
    }

    fn attend(&self, input: PatternInput) -> PatternOutput {
        let PatternInput {
            qkv,
            mask,
            bias,
            parameters,
            mut context,
            ..
        } = input;
        let scores = Scores {
            mask,
            scale: qkv.scale(),
            bias,
        };
        let paired = Qkv {
            value: values_of_pairs(qkv.value),
            ..qkv
        };
        // Dropout, the observer, and the kernel of full attention where the maps need not be seen.
        let attended = context.attend(paired, &scores);
        let [batch, heads, queries, width] = attended.output.dims();
        let maps = attended
            .output
            .reshape([batch, heads / 2, 2, queries, width]);
        let [first, second] = [0, 1].map(|map| {
            let context = maps.clone().narrow(2, map, 1);
            context.reshape([batch, heads / 2, queries, width])
        });
        let difference = first - second * self.lambda(&parameters).reshape([1, 1, 1, 1]);
        let normed = norm(
            difference,
            NormParameters {
                kind: NormKind::Rms,
                weight: parameters.get("norm"),
                bias: None,
                epsilon: 1e-5,
            },
        );
        let output = normed * (1.0 - self.lambda_init);
        PatternOutput {
            output: output
                .reshape([batch, heads / 2, queries, 2, width / 2])
                .swap_dims(2, 3)
                .reshape([batch, heads, queries, width / 2]),
            weights: attended.weights,
        }
    }
}

impl Differential {
    /// λ, `[1]`
    fn lambda(&self, parameters: &PatternParameters) -> Tensor<1> {
        let factor = |query: &str, key: &str| {
            let products = parameters.get::<1>(query) * parameters.get::<1>(key);
            products.sum().exp()
        };
        let first = factor("lambda_query_1", "lambda_key_1");
        first - factor("lambda_query_2", "lambda_key_2") + self.lambda_init
    }
}

/// For each head the values of both heads of its pair: `[batch, heads, keys, width]` to `[batch, heads, keys, 2 · width]`.
fn values_of_pairs(value: Tensor<4>) -> Tensor<4> {
    let [batch, heads, keys, width] = value.dims();
    let pairs = value
        .reshape([batch, heads / 2, 2, keys, width])
        .swap_dims(2, 3)
        .reshape([batch, heads / 2, 1, keys, 2 * width]);
    pairs
        .repeat_dim(2, 2)
        .reshape([batch, heads, keys, 2 * width])
}
