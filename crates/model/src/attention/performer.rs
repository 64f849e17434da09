//! Performer: softmax attention estimated by positive orthogonal random features (FAVOR+). Choromanski et al. 2021.

use std::ops::Range;

use attentive_tensor::{Purpose, Randomness, Stabilizer, orthogonal_features, random_features};
use burn::module::{Module, Param};
use burn::tensor::{Device, Shape, Tensor};

use super::heads::with_heads;
use super::linear::{attend, operations, state_numbers, without_dropout};
use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place, RelativePositions, Role,
};
use crate::checks::{refuse, within};
use crate::{ConfigError, Initializer, Operations};

/// Far beyond what an estimate gains by.
const MOST_FEATURES: usize = 1 << 16;

with_heads! {
    /// Settings of Performer's attention.
    pub struct PerformerConfig {
        /// Random features of a query or key; the estimate gets better with more.
        pub features: usize,
        /// Draws new features after so many steps of training; never unless said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub redraw_every: Option<u64>,
        /// Added to every feature. Without it, keys may be scaled as one likes, so that no later key can be felt.
        #[serde(default)]
        pub epsilon: f64,
    }
}

impl AttentionSettings for PerformerConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.take_positions(path, "performer", &[RelativePositions::Rotary])?;
        without_dropout(path, "performer", self.dropout)?;
        within(&format!("{path}.features"), self.features, MOST_FEATURES)?;
        if self.redraw_every == Some(0) {
            return refuse(
                &format!("{path}.redraw_every"),
                "0 is out of range; use 1 or more, or leave it out",
            );
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return refuse(
                &format!("{path}.epsilon"),
                format!("{} is out of range; use 0 or more", self.epsilon),
            );
        }
        if self.epsilon > 0.0 && place.role == Role::Causal {
            return refuse(
                &format!("{path}.epsilon"),
                format!(
                    "{}: causal features have nothing to be measured against; use 0",
                    self.epsilon
                ),
            );
        }
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let head_width = self.shared().head_width(place.widths.queries);
        let shape = [self.features, head_width];
        let seed = initial.seed();
        let pattern = Pattern::Performer(Performer {
            features: initial.frozen(shape, move |device| drawn(shape, seed, 0, device)),
            epsilon: self.epsilon,
            redraw_every: self.redraw_every,
            seed,
        });
        Attention::MultiHead(MultiHead::new(&self.shared(), pattern, place, initial))
    }

    fn operations(&self, width: usize, _length: usize) -> Operations {
        let heads = self.shared();
        let mut operations = operations(&heads, width, self.features as u64);
        // Queries and keys are projected to their features.
        let rows = heads.heads + heads.key_value_heads();
        let projected = 2 * rows as u64 * heads.head_width(width) as u64 * self.features as u64;
        operations.attention = operations.attention.saturating_add(projected);
        operations
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Fixed(state_numbers(&self.shared(), width, self.features))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("performer of {} features", self.features);
        self.shared().describe(&kind, width)
    }
}

/// Random features of queries and keys, and linear attention of them.
#[derive(Module, Debug)]
pub struct Performer {
    /// `[features, head_width]`, drawn and not trained
    features: Param<Tensor<2>>,
    #[module(skip)]
    epsilon: f64,
    #[module(skip)]
    redraw_every: Option<u64>,
    #[module(skip)]
    seed: u64,
}

impl Performer {
    pub(super) fn attend(&self, heads: Projected, call: Call) -> Context {
        // A maximum over keys would let an earlier output feel later ones.
        let of_keys = match call.site.role {
            Role::Causal => Stabilizer::Constant,
            Role::Bidirectional | Role::Cross => Stabilizer::KeysMaximum,
        };
        let features = |x: Tensor<4>, stabilizer: Stabilizer| {
            random_features(x, self.features.val(), stabilizer, self.epsilon)
        };
        let key = match &call.real {
            // All are measured by the largest feature of all keys, which must be a real key's.
            Some(real) if of_keys == Stabilizer::KeysMaximum => without_padding(heads.key, real),
            _ => heads.key,
        };
        let features = Projected {
            query: features(heads.query, Stabilizer::RowMaximum),
            key: features(key, of_keys),
            value: heads.value,
        };
        attend(features, call)
    }

    /// Draws the features of this step, where it is time for new ones.
    pub(super) fn redraw(self, step: u64) -> Self {
        let due = self
            .redraw_every
            .filter(|every| step.is_multiple_of(*every));
        let Some(every) = due else { return self };
        let (shape, seed) = (self.features.dims(), self.seed);
        Self {
            features: self.features.map(|old| {
                let new = drawn(shape, seed, step / every, &old.device());
                new.set_require_grad(false)
            }),
            ..self
        }
    }
}

/// Keys `[batch, heads, keys, head_width]` whose padding repeats a real key.
fn without_padding(key: Tensor<4>, real: &[Range<usize>]) -> Tensor<4> {
    let [batch, heads, keys, head_width] = key.dims();
    let sequence = |(row, real): (usize, &Range<usize>)| {
        let key = key.clone().narrow(0, row, 1);
        if real.is_empty() {
            return key;
        }
        let repeated = |count: usize| {
            let first = key.clone().narrow(2, real.start, 1);
            first.expand(Shape::from([1, heads, count, head_width]))
        };
        let real_keys = key.clone().narrow(2, real.start, real.len());
        let (before, after) = (real.start, keys - real.end);
        Tensor::cat(vec![repeated(before), real_keys, repeated(after)], 2)
    };
    match batch {
        0 => key,
        _ => Tensor::cat(real.iter().enumerate().map(sequence).collect(), 0),
    }
}

/// The features of one layer: a function of its seed and of how often they were drawn before.
fn drawn([features, head_width]: [usize; 2], seed: u64, draw: u64, device: &Device) -> Tensor<2> {
    let randomness = &mut Randomness::new(Purpose::Frozen, seed, draw);
    orthogonal_features(features, head_width, randomness, device)
}
