//! The second seam: heads in, projected or raw, and their context out. Who meets whom is a pattern's business, projections are
//! not.

use std::ops::Range;

use attentive_tensor::{
    Mask, ScoreBias, Scores, apply_weights, attention, attention_weights, dropout, masked_softmax,
};
use burn::module::Module;
use burn::tensor::Tensor;

use super::full::Softmax;
use super::{
    Argmax, BigBird, Chunks, Cosine, LinearPattern, Linformer, NadarayaWatson, Performer, Role,
    Scored,
};
use crate::{AttentionSite, Pass};

/// How heads meet.
#[derive(Module, Debug)]
pub enum Pattern {
    /// Softmax over all keys, or over those in a window.
    Softmax(Softmax),
    /// Softmax of cosines.
    Cosine(Cosine),
    /// The best key alone.
    Argmax(Argmax),
    /// Softmax of a score of one's choice.
    Scored(Scored),
    /// Weights that fall with distance.
    NadarayaWatson(NadarayaWatson),
    /// Softmax over slots that are mapped from all positions.
    Linformer(Linformer),
    /// Softmax over blocks: those near, the ends and a few drawn ones.
    BigBird(BigBird),
    /// Softmax within chunks and to those beside them.
    Chunks(Chunks),
    /// Sums of products of positive features.
    Linear(LinearPattern),
    /// The same with random features.
    Performer(Performer),
}

impl Pattern {
    /// The context of each query.
    pub fn attend(&self, heads: Projected, call: Call) -> Context {
        match self {
            Self::Softmax(pattern) => pattern.attend(heads, call),
            Self::Cosine(pattern) => pattern.attend(heads, call),
            Self::Argmax(pattern) => pattern.attend(heads, call),
            Self::Scored(pattern) => pattern.attend(heads, call),
            Self::NadarayaWatson(pattern) => pattern.attend(heads, call),
            Self::Linformer(pattern) => pattern.attend(heads, call),
            Self::BigBird(pattern) => pattern.attend(heads, call),
            Self::Chunks(pattern) => pattern.attend(heads, call),
            Self::Linear(pattern) => pattern.attend(heads, call),
            Self::Performer(pattern) => pattern.attend(heads, call),
        }
    }

    /// Draws anew what is drawn anew at this step.
    pub(super) fn redraw(self, step: u64) -> Self {
        match self {
            Self::Performer(pattern) => Self::Performer(pattern.redraw(step)),
            other => other,
        }
    }
}

/// Heads after their projections, or sequences as they are as one head.
#[derive(Clone, Debug)]
pub struct Projected {
    /// `[batch, heads, queries, head_width]`
    pub query: Tensor<4>,
    /// `[batch, key_value_heads, keys, head_width]`
    pub key: Tensor<4>,
    /// `[batch, key_value_heads, keys, head_width]`
    pub value: Tensor<4>,
}

impl Projected {
    /// One head, of tensors `[batch, length, width]`.
    pub fn one_head(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self {
            query: query.unsqueeze_dim(1),
            key: key.unsqueeze_dim(1),
            value: value.unsqueeze_dim(1),
        }
    }
}

/// What a pattern gives.
#[derive(Clone, Debug)]
pub struct Context {
    /// `[batch, heads, queries, head_width]`
    pub context: Tensor<4>,
    /// `[batch, heads, queries, keys]`, if somebody asked for them.
    pub weights: Option<Tensor<4>>,
}

/// What goes beside the heads.
pub struct Call<'a, 'p> {
    /// Which attention this is.
    pub site: AttentionSite,
    /// Where padding leaves real keys, counted from the first position of the cache.
    pub real: Option<Vec<Range<usize>>>,
    /// On the weights.
    pub dropout: f64,
    /// The companions of the whole pass.
    pub pass: &'a mut Pass<'p>,
}

impl<'a, 'p> Call<'a, 'p> {
    /// A call without dropout, with the padding of the pass.
    pub fn new(site: AttentionSite, pass: &'a mut Pass<'p>) -> Self {
        Self {
            site,
            real: pass.real.clone(),
            dropout: 0.0,
            pass,
        }
    }

    /// What the products of queries and keys are multiplied with.
    pub fn scale(&self, heads: &Projected) -> f64 {
        1.0 / (heads.query.dims()[3] as f64).sqrt()
    }

    /// Puts the keys and values of earlier passes in front, as far as they are within `reach`. Gives also how many of the
    /// earliest positions are gone.
    pub fn remember(&mut self, heads: Projected, reach: Option<usize>) -> (Projected, usize) {
        let cache = match self.pass.cache.as_deref_mut() {
            Some(cache) if self.site.role != Role::Cross => cache,
            _ => return (heads, 0),
        };
        let Projected { query, key, value } = heads;
        let held = cache.key_values(self.site.layer, reach);
        let (key, value) = held.append(key, value);
        let dropped = held.dropped();
        (Projected { query, key, value }, dropped)
    }

    /// Who may attend to whom, when `dropped` positions of the cache are gone.
    pub fn mask(&self, dropped: usize) -> Mask {
        let mask = self.site.role.mask();
        match &self.real {
            Some(real) => mask.with_keys(
                real.iter()
                    .map(|keys| {
                        keys.start.saturating_sub(dropped)..keys.end.saturating_sub(dropped)
                    })
                    .collect(),
            ),
            None => mask,
        }
    }

    /// The bias of the model's positions on these heads' scores, if it has one.
    pub fn bias(&self, heads: &Projected) -> Option<ScoreBias> {
        let bias = self.pass.distance_bias.as_ref()?;
        let (queries, keys) = (heads.query.dims()[2], heads.key.dims()[2]);
        (self.site.role != Role::Cross).then(|| ScoreBias::Distances(bias.distances(queries, keys)))
    }

    /// Whether the observer asks for the weights.
    pub fn wants_weights(&self) -> bool {
        let observer = self.pass.observer.as_deref();
        observer.is_some_and(|observer| observer.wants_weights(self.site))
    }

    /// Shows weights to the observer, who may return others.
    pub fn show(&mut self, weights: Tensor<4>) -> Tensor<4> {
        match self.pass.observer.as_deref_mut() {
            Some(observer) => observer.weights(self.site, weights),
            None => weights,
        }
    }

    /// Softmax attention; the weights exist only when the observer asks for them.
    pub fn attend(&mut self, heads: Projected, scores: &Scores) -> Context {
        let Projected { query, key, value } = heads;
        if !self.wants_weights() {
            let randomness = self.pass.randomness.as_deref_mut();
            let context = attention(query, key, value, scores, self.dropout, randomness);
            return Context {
                context,
                weights: None,
            };
        }
        let weights = attention_weights(query, key, scores);
        self.weigh(weights, value)
    }

    /// Gathers the values with the softmax of `scores` `[batch, heads, queries, keys]`, where the mask allows.
    pub fn weigh_by(&mut self, scores: Tensor<4>, mask: &Mask, value: Tensor<4>) -> Context {
        let weights = masked_softmax(scores, mask);
        self.weigh(weights, value)
    }

    /// Shows the weights, drops some, and gathers the values with the rest.
    pub fn weigh(&mut self, weights: Tensor<4>, value: Tensor<4>) -> Context {
        let (weights, shown) = if self.wants_weights() {
            let weights = self.show(weights);
            (weights.clone(), Some(weights))
        } else {
            (weights, None)
        };
        let randomness = self.pass.randomness.as_deref_mut();
        Context {
            context: apply_weights(dropout(weights, self.dropout, randomness), value),
            weights: shown,
        }
    }
}
