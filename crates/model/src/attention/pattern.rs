//! Patterns: which queries attend to which keys, and how. Projections, grouped heads and rotary positions are outside.

use std::ops::Range;

use attentive_tensor::{
    Mask, ScoreBias, Scores, apply_weights, attention, attention_weights, dropout, masked_softmax,
};
use burn::module::Module;
use burn::tensor::Tensor;

use super::full::Softmax;
use super::{
    Argmax, BigBird, Chunks, Cosine, Custom, LinearPattern, Linformer, NadarayaWatson, Performer,
    Role, Scored,
};
use crate::{AttentionSite, ForwardContext};

/// How queries attend to keys.
#[derive(Module, Debug)]
pub enum Pattern {
    /// Softmax over all keys, or over those in a window.
    Softmax(Softmax),
    /// Softmax of cosines.
    Cosine(Cosine),
    /// The value of the best key.
    Argmax(Argmax),
    /// Softmax with a choice of score functions.
    Scored(Scored),
    /// Kernel regression.
    NadarayaWatson(NadarayaWatson),
    /// Softmax over keys and values projected along the length.
    Linformer(Linformer),
    /// Softmax over neighbouring, first, last and random blocks.
    BigBird(BigBird),
    /// Softmax over a chunk and its neighbours.
    Chunks(Chunks),
    /// Linear attention with a positive feature map.
    Linear(LinearPattern),
    /// Linear attention with random features.
    Performer(Performer),
    /// One that the program registered.
    Custom(Custom),
}

impl Pattern {
    /// The attention output of each query.
    pub fn attend(&self, qkv: Qkv, context: AttendContext) -> PatternOutput {
        match self {
            Self::Softmax(pattern) => pattern.attend(qkv, context),
            Self::Cosine(pattern) => pattern.attend(qkv, context),
            Self::Argmax(pattern) => pattern.attend(qkv, context),
            Self::Scored(pattern) => pattern.attend(qkv, context),
            Self::NadarayaWatson(pattern) => pattern.attend(qkv, context),
            Self::Linformer(pattern) => pattern.attend(qkv, context),
            Self::BigBird(pattern) => pattern.attend(qkv, context),
            Self::Chunks(pattern) => pattern.attend(qkv, context),
            Self::Linear(pattern) => pattern.attend(qkv, context),
            Self::Performer(pattern) => pattern.attend(qkv, context),
            Self::Custom(pattern) => pattern.attend(qkv, context),
        }
    }

    /// Resamples random features when due.
    pub(super) fn resample_features(self, step: u64) -> Self {
        match self {
            Self::Performer(pattern) => Self::Performer(pattern.resample_features(step)),
            other => other,
        }
    }
}

/// Queries, keys and values, projected to heads or as one raw head.
#[derive(Clone, Debug)]
pub struct Qkv {
    /// `[batch, heads, queries, head_width]`
    pub query: Tensor<4>,
    /// `[batch, key_value_heads, keys, head_width]`
    pub key: Tensor<4>,
    /// `[batch, key_value_heads, keys, head_width]`
    pub value: Tensor<4>,
}

impl Qkv {
    /// One head, of tensors `[batch, length, width]`.
    pub fn one_head(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self {
            query: query.unsqueeze_dim(1),
            key: key.unsqueeze_dim(1),
            value: value.unsqueeze_dim(1),
        }
    }

    /// The usual scale of the scores, `1 / √head_width`.
    pub fn scale(&self) -> f64 {
        1.0 / (self.query.dims()[3] as f64).sqrt()
    }
}

/// The output of a pattern.
#[derive(Clone, Debug)]
pub struct PatternOutput {
    /// `[batch, heads, queries, head_width]`
    pub output: Tensor<4>,
    /// `[batch, heads, queries, keys]`, if the observer requested them.
    pub weights: Option<Tensor<4>>,
}

/// What a pattern needs besides queries, keys and values.
pub struct AttendContext<'a, 'p> {
    /// The layer and its role.
    pub site: AttentionSite,
    /// The keys that are not padding, counted from the first position of the cache; one range per batch row.
    pub non_padding: Option<Vec<Range<usize>>>,
    /// Dropout on the attention weights.
    pub dropout: f64,
    /// The context of the whole forward pass.
    pub pass: &'a mut ForwardContext<'p>,
}

impl<'a, 'p> AttendContext<'a, 'p> {
    /// A context without dropout, with the padding of the pass.
    pub fn new(site: AttentionSite, pass: &'a mut ForwardContext<'p>) -> Self {
        Self {
            site,
            non_padding: pass.non_padding.clone(),
            dropout: 0.0,
            pass,
        }
    }

    /// Appends keys and values to the cache, if there is one, and returns all cached ones, those within `window` of the
    /// next query if there is a window. Also returns how many of the earliest positions were evicted.
    pub fn append_to_cache(&mut self, qkv: Qkv, window: Option<usize>) -> (Qkv, usize) {
        let cache = match self.pass.cache.as_deref_mut() {
            Some(cache) if self.site.role != Role::Cross => cache,
            _ => return (qkv, 0),
        };
        let Qkv { query, key, value } = qkv;
        let cached = cache.key_values(self.site.layer, window);
        let (key, value) = cached.append(key, value);
        let evicted = cached.evicted();
        (Qkv { query, key, value }, evicted)
    }

    /// The mask of role and padding over the cached keys, after eviction of the first `evicted`.
    pub fn mask(&self, evicted: usize) -> Mask {
        let mask = self.site.role.mask();
        let Some(non_padding) = &self.non_padding else {
            return mask;
        };
        let shift = |keys: &Range<usize>| {
            keys.start.saturating_sub(evicted)..keys.end.saturating_sub(evicted)
        };
        mask.with_keys(non_padding.iter().map(shift).collect())
    }

    /// The relative position bias of the model's positions, if it has one.
    pub fn bias(&self, qkv: &Qkv) -> Option<ScoreBias> {
        let bias = self.pass.relative_position_bias.as_ref()?;
        let (queries, keys) = (qkv.query.dims()[2], qkv.key.dims()[2]);
        (self.site.role != Role::Cross).then(|| ScoreBias::Distances(bias.distances(queries, keys)))
    }

    /// Whether the observer requests the weights.
    pub fn wants_weights(&self) -> bool {
        let observer = self.pass.observer.as_deref();
        observer.is_some_and(|observer| observer.wants_weights(self.site))
    }

    /// Passes the weights to the observer, who may replace them.
    pub fn observe_weights(&mut self, weights: Tensor<4>) -> Tensor<4> {
        match self.pass.observer.as_deref_mut() {
            Some(observer) => observer.weights(self.site, weights),
            None => weights,
        }
    }

    /// Softmax attention. The weights are materialized only if the observer requests them.
    pub fn attend(&mut self, qkv: Qkv, scores: &Scores) -> PatternOutput {
        let Qkv { query, key, value } = qkv;
        if !self.wants_weights() {
            let randomness = self.pass.randomness.as_deref_mut();
            return PatternOutput {
                output: attention(query, key, value, scores, self.dropout, randomness),
                weights: None,
            };
        }
        let weights = attention_weights(query, key, scores);
        self.attend_with_weights(weights, value)
    }

    /// Attends with the masked softmax of `scores` `[batch, heads, queries, keys]`.
    pub fn attend_with_scores(
        &mut self,
        scores: Tensor<4>,
        mask: &Mask,
        value: Tensor<4>,
    ) -> PatternOutput {
        let weights = masked_softmax(scores, mask);
        self.attend_with_weights(weights, value)
    }

    /// Attends with these weights, after the observer and dropout.
    pub fn attend_with_weights(&mut self, weights: Tensor<4>, value: Tensor<4>) -> PatternOutput {
        let (weights, observed) = if self.wants_weights() {
            let weights = self.observe_weights(weights);
            (weights.clone(), Some(weights))
        } else {
            (weights, None)
        };
        let randomness = self.pass.randomness.as_deref_mut();
        PatternOutput {
            output: apply_weights(dropout(weights, self.dropout, randomness), value),
            weights: observed,
        }
    }
}
