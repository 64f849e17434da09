//! Linear attention: products of positive features in the place of exponentials. Katharopoulos et al. 2020.
//!
//! `output = Σ φ(q)·φ(k) v / Σ φ(q)·φ(k)`, whose sums over keys do not depend on the query: one pass over the keys, and a
//! state of constant size in the place of a cache.

use attentive_tensor::{
    FeatureMap, Mask, apply_weights, linear_attention, masked_softmax, positive_features,
};
use burn::module::Module;

use super::heads::{HeadsConfig, with_heads};
use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place, RelativePositions, Role,
};
use crate::checks::refuse;
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of linear attention.
    pub struct LinearAttentionConfig {
        /// What makes queries and keys positive.
        #[serde(default = "default_map")]
        pub map: FeatureMap,
    }
}

fn default_map() -> FeatureMap {
    FeatureMap::EluPlusOne
}

impl AttentionSettings for LinearAttentionConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.take_positions(path, "linear", &[RelativePositions::Rotary])?;
        without_dropout(path, "linear", self.dropout)?;
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let pattern = Pattern::Linear(LinearPattern { map: self.map });
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, _length: usize) -> Operations {
        let head_width = self.shared().head_width(width) as u64;
        operations(&self.shared(), width, head_width)
    }

    fn cache(&self, width: usize) -> CacheSize {
        let head_width = self.shared().head_width(width);
        CacheSize::Fixed(state_numbers(&self.shared(), width, head_width))
    }

    fn describe(&self, width: usize) -> String {
        self.shared().describe("linear attention", width)
    }
}

/// Weights that are never made cannot be dropped.
pub(super) fn without_dropout(path: &str, kind: &str, dropout: f64) -> Result<(), ConfigError> {
    if dropout == 0.0 {
        return Ok(());
    }
    refuse(
        &format!("{path}.dropout"),
        format!("{dropout}: {kind} attention never makes the weights that would be dropped; use 0"),
    )
}

/// Operations per token: four maps, and products of features with the state, to read it and to add to it.
pub(super) fn operations(heads: &HeadsConfig, width: usize, features: u64) -> Operations {
    // Reading the state and adding to it cost what as many keys as there are features would, each.
    heads.operations(width, 2 * features)
}

/// Numbers of a state.
pub(super) fn state_numbers(heads: &HeadsConfig, width: usize, features: usize) -> u64 {
    (heads.key_value_heads() * features * (heads.head_width(width) + 1)) as u64
}

/// Positive features of queries and keys, and linear attention of them.
#[derive(Module, Debug)]
pub struct LinearPattern {
    #[module(skip)]
    map: FeatureMap,
}

impl LinearPattern {
    pub(super) fn attend(&self, heads: Projected, call: Call) -> Context {
        let features = Projected {
            query: positive_features(heads.query, self.map),
            key: positive_features(heads.key, self.map),
            value: heads.value,
        };
        attend(features, call)
    }
}

/// Linear attention of features, with a state from the cache in causal passes.
pub(super) fn attend(features: Projected, call: Call) -> Context {
    let Projected { query, key, value } = features;
    let added = key.dims()[2];
    let layer = call.site.layer;
    let is_causal = call.site.role == Role::Causal;
    let cache = call.pass.cache.as_deref_mut().filter(|_| is_causal);
    let (start, passed) = cache.map_or((None, 0), |cache| cache.state(layer).taken());
    let mask = call.mask(passed);
    // A state knows no keys that weights could be given of.
    if !(is_causal && call.pass.cache.is_some()) && call.wants_weights() {
        return weigh(Projected { query, key, value }, &mask, call);
    }
    let attended = linear_attention(query, key, value, &mask, start);
    if let Some(cache) = call.pass.cache.as_deref_mut().filter(|_| is_causal) {
        cache.state(layer).put(attended.state, passed + added);
    }
    Context {
        context: attended.context,
        weights: None,
    }
}

/// The same with the weights that nobody else makes: each product's share of its row's sum.
fn weigh(features: Projected, mask: &Mask, mut call: Call) -> Context {
    let Projected { query, key, value } = features;
    // The softmax of logarithms is the share.
    let products = apply_weights(query, key.swap_dims(2, 3));
    let weights = masked_softmax(products.log(), mask);
    call.weigh(weights, value)
}
