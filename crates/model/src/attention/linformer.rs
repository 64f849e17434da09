//! Linformer: learned projections along the length compress the keys and values of all positions into a few positions. Wang et al.
//! 2020.
//!
//! ```text
//! keys   [keys, head_width]  →  key_map · keys       [projected_length, head_width]
//! values [keys, head_width]  →  value_map · values   [projected_length, head_width]
//! ```
//!
//! An observer sees weights over the projected positions, `[batch, heads, queries, projected_length]`.

use std::ops::Range;

use attentive_tensor::{Mask, Scores, linear};
use burn::module::{Module, Param};
use burn::tensor::{Bool, Shape, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::heads::with_heads;
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionSettings, AttentionSpec, CacheSize, Pattern, RelativePositions, Role,
};
use crate::checks::within;
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

with_heads! {
    /// Settings of Linformer attention.
    pub struct LinformerConfig {
        /// The length of the projected keys and values.
        pub projected_length: usize,
        /// Which projections are shared.
        #[serde(default)]
        pub sharing: LinformerSharing,
    }

    /// `heads` heads with keys and values projected to this length.
    new(projected_length: usize) { sharing: LinformerSharing::default() }
}

impl LinformerConfig {
    setters! {
        with_sharing(sharing: LinformerSharing);
    }
}

/// Which projections along the length are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinformerSharing {
    /// Shared by all heads: one projection of keys and one of values.
    #[default]
    Separate,
    /// Shared by all heads, keys and values: one projection.
    KeyValue,
    /// Not shared: a projection of keys and one of values for each key-value head.
    PerHead,
}

impl AttentionSettings for LinformerConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        // A projected position mixes all others, so it would leak later ones to earlier queries.
        spec.require_role(path, "linformer", &[Role::Bidirectional, Role::Cross])?;
        spec.require_positions(path, "linformer", &[RelativePositions::Rotary])?;
        let field = format!("{path}.projected_length");
        within(&field, self.projected_length, spec.length)?;
        self.heads_config().validate(path, spec.widths.queries)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let heads_config = self.heads_config();
        let mut projection = || {
            let (slots, length) = (self.projected_length, spec.length);
            // As in the paper: preserves the scale of the scores.
            let std = 1.0 / (slots as f64).sqrt();
            match self.sharing {
                LinformerSharing::Separate | LinformerSharing::KeyValue => {
                    LengthProjection::Shared(initializer.normal([slots, length], std))
                }
                LinformerSharing::PerHead => {
                    let heads = heads_config.key_value_heads();
                    LengthProjection::PerHead(initializer.normal([heads, slots, length], std))
                }
            }
        };
        let pattern = Linformer {
            key_map: projection(),
            value_map: (self.sharing != LinformerSharing::KeyValue).then(projection),
            length: spec.length,
            projected_length: self.projected_length,
        };
        let pattern = Pattern::Linformer(pattern);
        heads_config.build(pattern, spec, initializer)
    }

    fn flops(&self, width: usize, _length: usize, _role: Role) -> Flops {
        let (heads_config, slots) = (self.heads_config(), self.projected_length as u64);
        let mut flops = heads_config.flops(width, slots);
        let mapped = heads_config.key_value_size(width);
        flops.weights += (2 * mapped).saturating_mul(slots);
        flops
    }

    fn cache(&self, _width: usize) -> CacheSize {
        CacheSize::Impossible
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!(
            "linformer attention to {} projected positions",
            self.projected_length
        );
        self.heads_config().describe(&kind, width)
    }
}

/// Softmax attention over projected keys and values.
#[derive(Module, Debug)]
pub struct Linformer {
    key_map: LengthProjection,
    /// None if keys and values share a projection.
    value_map: Option<LengthProjection>,
    #[module(skip)]
    length: usize,
    #[module(skip)]
    projected_length: usize,
}

/// A projection along the length.
#[derive(Module, Debug)]
enum LengthProjection {
    /// `[projected_length, length]`
    Shared(Param<Tensor<2>>),
    /// `[key_value_heads, projected_length, length]`
    PerHead(Param<Tensor<3>>),
}

impl LengthProjection {
    /// `[batch, key_value_heads, keys, head_width]` to `[batch, key_value_heads, projected_length, head_width]`
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, heads, keys, _] = x.dims();
        match self {
            Self::Shared(weight) => {
                let weight = weight.val().narrow(1, 0, keys);
                linear(x.swap_dims(2, 3), weight, None).swap_dims(2, 3)
            }
            Self::PerHead(weight) => {
                let weight = weight.val().narrow(2, 0, keys).unsqueeze::<4>();
                let slots = weight.dims()[2];
                // Expanded explicitly: burn's broadcast product with an empty batch reads out of bounds.
                let weight = weight.expand(Shape::from([batch, heads, slots, keys]));
                weight.matmul(x)
            }
        }
    }
}

impl Linformer {
    /// # Panics
    /// When there are more keys than the projections have columns.
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let (mut qkv, _) = context.append_to_cache(qkv, None);
        let keys = qkv.key.dims()[2];
        assert!(
            keys <= self.length,
            "linformer attention: {keys} keys do not fit projections of length {}",
            self.length
        );
        let mut mask = Mask::none();
        if let Some(non_padding) = &context.non_padding {
            let padding = padding(non_padding, &qkv.key);
            qkv.key = qkv.key.mask_fill(padding.clone(), 0.0);
            qkv.value = qkv.value.mask_fill(padding, 0.0);
            // Projected positions of a fully padded sequence are masked.
            let slots = |keys: &Range<usize>| match keys.is_empty() {
                true => 0..0,
                false => 0..self.projected_length,
            };
            mask = mask.with_keys(non_padding.iter().map(slots).collect());
        }
        let scores = Scores::new(mask, qkv.scale());
        qkv.key = self.key_map.forward(qkv.key);
        let value_map = self.value_map.as_ref().unwrap_or(&self.key_map);
        qkv.value = value_map.forward(qkv.value);
        context.attend(qkv, &scores)
    }
}

/// Which elements of `x` `[batch, key_value_heads, keys, head_width]` belong to padding.
fn padding(non_padding: &[Range<usize>], x: &Tensor<4>) -> Tensor<4, Bool> {
    let [batch, _, keys, _] = x.dims();
    assert_eq!(
        non_padding.len(),
        batch,
        "linformer attention: {} ranges of keys do not match keys {:?}",
        non_padding.len(),
        x.dims()
    );
    let padded = non_padding
        .iter()
        .flat_map(|non_padding| (0..keys).map(|key| !non_padding.contains(&key)));
    let padded = TensorData::new(padded.collect::<Vec<bool>>(), [batch, 1, keys, 1]);
    Tensor::<4, Bool>::from_data(padded, &x.device()).expand(x.shape())
}
