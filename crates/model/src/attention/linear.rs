//! Linear attention: products of positive features instead of exponentials. Katharopoulos et al. 2020.
//!
//! `output = Σ φ(q)·φ(k) v / Σ φ(q)·φ(k)`. The sums over keys do not depend on the query: the cost is linear in the length, and
//! a state of constant size replaces the cache of keys and values.

use attentive_tensor::{
    FeatureMap, Mask, apply_weights, linear_attention, masked_softmax, positive_features,
};
use burn::module::Module;

use super::heads::{HeadsConfig, with_heads};
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionSettings, AttentionSpec, CacheSize, Pattern, RelativePositions, Role,
};
use crate::checks::refuse;
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

with_heads! {
    /// Settings of linear attention.
    pub struct LinearAttentionConfig {
        /// The feature map.
        #[serde(default = "default_map")]
        pub map: FeatureMap,
    }

    /// `heads` heads.
    new() { map: default_map() }
}

impl LinearAttentionConfig {
    setters! {
        with_map(map: FeatureMap);
    }
}

fn default_map() -> FeatureMap {
    FeatureMap::EluPlusOne
}

impl AttentionSettings for LinearAttentionConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        spec.require_positions(path, "linear", &[RelativePositions::Rotary])?;
        without_dropout(path, "linear", self.dropout)?;
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let pattern = Pattern::Linear(LinearPattern { map: self.map });
        self.heads_config().build(pattern, spec, initializer)
    }

    fn flops(&self, width: usize, _length: usize, _role: Role) -> Flops {
        let head_width = self.heads_config().head_width(width) as u64;
        flops(&self.heads_config(), width, head_width)
    }

    fn cache(&self, width: usize) -> CacheSize {
        let head_width = self.heads_config().head_width(width);
        CacheSize::Fixed(state_size(&self.heads_config(), width, head_width))
    }

    fn describe(&self, width: usize) -> String {
        self.heads_config().describe("linear attention", width)
    }
}

/// Refuses dropout: the weights that it would apply to are never materialized.
pub(super) fn without_dropout(path: &str, kind: &str, dropout: f64) -> Result<(), ConfigError> {
    if dropout == 0.0 {
        return Ok(());
    }
    refuse(
        &format!("{path}.dropout"),
        format!(
            "{dropout}: {kind} attention never materializes the weights that dropout applies to; use 0"
        ),
    )
}

/// Flops per token: four projections, and reading and updating the state.
pub(super) fn flops(heads: &HeadsConfig, width: usize, features: u64) -> Flops {
    // Reading and updating the state each cost as much as one key per feature.
    heads.flops(width, 2 * features)
}

/// How many elements a state has.
pub(super) fn state_size(heads: &HeadsConfig, width: usize, features: usize) -> u64 {
    (heads.key_value_heads() * features * (heads.head_width(width) + 1)) as u64
}

/// Linear attention with a positive feature map.
#[derive(Module, Debug)]
pub struct LinearPattern {
    #[module(skip)]
    map: FeatureMap,
}

impl LinearPattern {
    pub(super) fn attend(&self, qkv: Qkv, context: AttendContext) -> PatternOutput {
        let features = Qkv {
            query: positive_features(qkv.query, self.map),
            key: positive_features(qkv.key, self.map),
            value: qkv.value,
        };
        attend(features, context)
    }
}

/// Linear attention of features. Causal layers continue from the state in the cache.
pub(super) fn attend(features: Qkv, context: AttendContext) -> PatternOutput {
    let Qkv { query, key, value } = features;
    let added = key.dims()[2];
    let layer = context.site.layer;
    let is_causal = context.site.role == Role::Causal;
    let cache = context.pass.cache.as_deref_mut().filter(|_| is_causal);
    let (start, passed) = cache.map_or((None, 0), |cache| cache.state(layer).take());
    let mask = context.mask(passed);
    // There are no weights over the keys that are summed up in a state.
    if !(is_causal && context.pass.cache.is_some()) && context.wants_weights() {
        return attend_with_weights(Qkv { query, key, value }, &mask, context);
    }
    let attended = linear_attention(query, key, value, &mask, start);
    if let Some(cache) = context.pass.cache.as_deref_mut().filter(|_| is_causal) {
        cache.state(layer).put(attended.state, passed + added);
    }
    PatternOutput {
        output: attended.context,
        weights: None,
    }
}

/// The same, materializing the attention weights for an observer that requests them.
fn attend_with_weights(features: Qkv, mask: &Mask, mut context: AttendContext) -> PatternOutput {
    let Qkv { query, key, value } = features;
    // The softmax of the logarithms normalizes the products.
    let products = apply_weights(query, key.swap_dims(2, 3));
    let weights = masked_softmax(products.log(), mask);
    context.attend_with_weights(weights, value)
}
