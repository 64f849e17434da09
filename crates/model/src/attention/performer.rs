//! Performer: an estimate of softmax attention by positive orthogonal random features (FAVOR+). Choromanski et al. 2021.

use std::ops::Range;

use attentive_tensor::{Purpose, Randomness, Stabilizer, orthogonal_features, random_features};
use burn::module::{Module, Param};
use burn::tensor::{Device, Shape, Tensor};

use super::heads::with_heads;
use super::linear::{attend, flops, state_size, without_dropout};
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionSettings, AttentionSpec, CacheSize, Pattern, RelativePositions, Role,
};
use crate::checks::{refuse, within};
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

/// Far beyond what helps.
const MAX_FEATURES: usize = 1 << 16;

with_heads! {
    /// Settings of Performer's attention.
    pub struct PerformerConfig {
        /// The number of random features; more give a better estimate.
        pub features: usize,
        /// Resamples the features every this many training steps; never by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resample_every: Option<u64>,
        /// Added to every feature. Must be zero in causal layers, where its effect would depend on later keys.
        #[serde(default)]
        pub epsilon: f64,
    }

    /// `heads` heads with `features` random features.
    new(features: usize) { resample_every: None, epsilon: 0.0 }
}

impl PerformerConfig {
    setters! {
        with_resample_every(resample_every: u64 => Some);
        with_epsilon(epsilon: f64);
    }
}

impl AttentionSettings for PerformerConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        spec.require_positions(path, "performer", &[RelativePositions::Rotary])?;
        without_dropout(path, "performer", self.dropout)?;
        within(&format!("{path}.features"), self.features, MAX_FEATURES)?;
        if self.resample_every == Some(0) {
            return refuse(
                &format!("{path}.resample_every"),
                "0 is out of range; use 1 or more, or leave it out",
            );
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return refuse(
                &format!("{path}.epsilon"),
                format!("{} is out of range; use 0 or more", self.epsilon),
            );
        }
        if self.epsilon > 0.0 && spec.role == Role::Causal {
            return refuse(
                &format!("{path}.epsilon"),
                format!(
                    "{} is out of range; use 0 in a causal layer, where its effect would depend on later keys",
                    self.epsilon
                ),
            );
        }
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let head_width = self.heads_config().head_width(spec.widths.queries);
        let shape = [self.features, head_width];
        let seed = initializer.seed();
        let pattern = Pattern::Performer(Performer {
            features: initializer.frozen(shape, move |device| sampled(shape, seed, 0, device)),
            epsilon: self.epsilon,
            resample_every: self.resample_every,
            seed,
        });
        self.heads_config().build(pattern, spec, initializer)
    }

    fn flops(&self, width: usize, _length: usize, _role: Role) -> Flops {
        let heads = self.heads_config();
        let mut flops = flops(&heads, width, self.features as u64);
        // The projection of queries and keys to their features.
        let rows = heads.heads + heads.key_value_heads();
        let projected = 2 * rows as u64 * heads.head_width(width) as u64 * self.features as u64;
        flops.attention = flops.attention.saturating_add(projected);
        flops
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Fixed(state_size(&self.heads_config(), width, self.features))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("performer of {} features", self.features);
        self.heads_config().describe(&kind, width)
    }
}

/// Linear attention with random features.
#[derive(Module, Debug)]
pub struct Performer {
    /// `[features, head_width]`, sampled and not trained
    features: Param<Tensor<2>>,
    #[module(skip)]
    epsilon: f64,
    #[module(skip)]
    resample_every: Option<u64>,
    #[module(skip)]
    seed: u64,
}

impl Performer {
    pub(super) fn attend(&self, qkv: Qkv, context: AttendContext) -> PatternOutput {
        // A maximum over keys would let later keys affect earlier outputs.
        let key_stabilizer = match context.site.role {
            Role::Causal => Stabilizer::Constant,
            Role::Bidirectional | Role::Cross => Stabilizer::KeysMaximum,
        };
        let features = |x: Tensor<4>, stabilizer: Stabilizer| {
            random_features(x, self.features.val(), stabilizer, self.epsilon)
        };
        let key = match &context.non_padding {
            // The maximum over keys must not include padding.
            Some(non_padding) if key_stabilizer == Stabilizer::KeysMaximum => {
                without_padding(qkv.key, non_padding)
            }
            _ => qkv.key,
        };
        let features = Qkv {
            query: features(qkv.query, Stabilizer::RowMaximum),
            key: features(key, key_stabilizer),
            value: qkv.value,
        };
        attend(features, context)
    }

    /// Resamples the features when due.
    pub(super) fn resample_features(self, step: u64) -> Self {
        let due = self
            .resample_every
            .filter(|every| step.is_multiple_of(*every));
        let Some(every) = due else { return self };
        let (shape, seed) = (self.features.dims(), self.seed);
        Self {
            features: self.features.map(|old| {
                let new = sampled(shape, seed, step / every, &old.device());
                new.set_require_grad(false)
            }),
            ..self
        }
    }
}

/// Keys `[batch, heads, keys, head_width]` with padding replaced by the first key that is not padding.
fn without_padding(key: Tensor<4>, non_padding: &[Range<usize>]) -> Tensor<4> {
    let [batch, heads, keys, head_width] = key.dims();
    let sequence = |(row, non_padding): (usize, &Range<usize>)| {
        let key = key.clone().narrow(0, row, 1);
        if non_padding.is_empty() {
            return key;
        }
        let repeated = |count: usize| {
            let first = key.clone().narrow(2, non_padding.start, 1);
            first.expand(Shape::from([1, heads, count, head_width]))
        };
        let kept = key.clone().narrow(2, non_padding.start, non_padding.len());
        let (before, after) = (non_padding.start, keys - non_padding.end);
        Tensor::cat(vec![repeated(before), kept, repeated(after)], 2)
    };
    match batch {
        0 => key,
        _ => Tensor::cat(non_padding.iter().enumerate().map(sequence).collect(), 0),
    }
}

/// The features of one layer, a function of its seed and the number of earlier samples.
fn sampled(
    [features, head_width]: [usize; 2],
    seed: u64,
    sample: u64,
    device: &Device,
) -> Tensor<2> {
    let randomness = &mut Randomness::new(Purpose::Frozen, seed, sample);
    orthogonal_features(features, head_width, randomness, device)
}
