//! Linformer: learned maps along the length turn the keys and values of all positions into those of a few slots. Wang et al.
//! 2020.
//!
//! ```text
//! keys   [keys, head_width]  →  key_map · keys       [projected_length, head_width]
//! values [keys, head_width]  →  value_map · values   [projected_length, head_width]
//! ```
//!
//! The weights that an observer sees are over the slots, `[batch, heads, queries, projected_length]`.

use std::ops::Range;

use attentive_tensor::{Mask, Scores, linear};
use burn::module::{Module, Param};
use burn::tensor::{Bool, Shape, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::heads::with_heads;
use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionSettings, CacheSize, MultiHead, Pattern, Place, RelativePositions, Role,
};
use crate::checks::within;
use crate::{ConfigError, Initializer, Operations};

with_heads! {
    /// Settings of Linformer attention.
    pub struct LinformerConfig {
        /// How many slots the positions are mapped to.
        pub projected_length: usize,
        /// What shares a map.
        #[serde(default)]
        pub sharing: LinformerSharing,
    }
}

/// What shares a map along the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinformerSharing {
    /// All heads: one map of keys and one of values.
    #[default]
    Separate,
    /// All heads, keys and values: one map.
    KeyValue,
    /// Nothing: a map of keys and one of values for each key-value head.
    PerHead,
}

impl AttentionSettings for LinformerConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        // A slot mixes positions, so an earlier query would see later ones through it.
        place.serve(path, "linformer", &[Role::Bidirectional, Role::Cross])?;
        place.take_positions(path, "linformer", &[RelativePositions::Rotary])?;
        let field = format!("{path}.projected_length");
        within(&field, self.projected_length, place.length)?;
        self.shared().validate(path, place.widths.queries)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let shared = self.shared();
        let mut map = || {
            let (slots, length) = (self.projected_length, place.length);
            // The paper's: a random map of this spread keeps products of keys and queries as large as they were.
            let deviation = 1.0 / (slots as f64).sqrt();
            match self.sharing {
                LinformerSharing::Separate | LinformerSharing::KeyValue => {
                    LengthMap::OfAllHeads(initial.normal([slots, length], deviation))
                }
                LinformerSharing::PerHead => {
                    let heads = shared.key_value_heads();
                    LengthMap::OfEachHead(initial.normal([heads, slots, length], deviation))
                }
            }
        };
        let pattern = Linformer {
            key_map: map(),
            value_map: (self.sharing != LinformerSharing::KeyValue).then(map),
            length: place.length,
            projected_length: self.projected_length,
        };
        let pattern = Pattern::Linformer(pattern);
        Attention::MultiHead(MultiHead::new(&shared, pattern, place, initial))
    }

    fn operations(&self, width: usize, _length: usize) -> Operations {
        let (shared, slots) = (self.shared(), self.projected_length as u64);
        let mut operations = shared.operations(width, slots);
        let mapped = shared.key_value_numbers(width);
        operations.weights += (2 * mapped).saturating_mul(slots);
        operations
    }

    fn cache(&self, _width: usize) -> CacheSize {
        CacheSize::Impossible
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("linformer attention to {} slots", self.projected_length);
        self.shared().describe(&kind, width)
    }
}

/// Softmax attention to slots that are mapped from all positions.
#[derive(Module, Debug)]
pub struct Linformer {
    key_map: LengthMap,
    /// The keys' map serves the values too where this is absent.
    value_map: Option<LengthMap>,
    #[module(skip)]
    length: usize,
    #[module(skip)]
    projected_length: usize,
}

/// A map along the length.
#[derive(Module, Debug)]
enum LengthMap {
    /// `[projected_length, length]`
    OfAllHeads(Param<Tensor<2>>),
    /// `[key_value_heads, projected_length, length]`
    OfEachHead(Param<Tensor<3>>),
}

impl LengthMap {
    /// `[batch, key_value_heads, keys, head_width]` to `[batch, key_value_heads, projected_length, head_width]`
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, heads, keys, _] = x.dims();
        match self {
            Self::OfAllHeads(map) => {
                let map = map.val().narrow(1, 0, keys);
                linear(x.swap_dims(2, 3), map, None).swap_dims(2, 3)
            }
            Self::OfEachHead(map) => {
                let map = map.val().narrow(2, 0, keys).unsqueeze::<4>();
                let slots = map.dims()[2];
                // Said for each sequence: left to itself, burn's product of one and no sequences reads what is not there.
                let map = map.expand(Shape::from([batch, heads, slots, keys]));
                map.matmul(x)
            }
        }
    }
}

impl Linformer {
    /// # Panics
    /// When there are more keys than the maps have columns.
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let (mut heads, _) = call.remember(heads, None);
        let keys = heads.key.dims()[2];
        assert!(
            keys <= self.length,
            "linformer attention: {keys} keys do not fit maps of length {}",
            self.length
        );
        let mut mask = Mask::none();
        if let Some(real) = &call.real {
            let padding = padding(real, &heads.key);
            heads.key = heads.key.mask_fill(padding.clone(), 0.0);
            heads.value = heads.value.mask_fill(padding, 0.0);
            // Where nothing is real, no slot holds anything.
            let slots = |keys: &Range<usize>| match keys.is_empty() {
                true => 0..0,
                false => 0..self.projected_length,
            };
            mask = mask.with_keys(real.iter().map(slots).collect());
        }
        let scores = Scores::new(mask, call.scale(&heads));
        heads.key = self.key_map.forward(heads.key);
        let value_map = self.value_map.as_ref().unwrap_or(&self.key_map);
        heads.value = value_map.forward(heads.value);
        call.attend(heads, &scores)
    }
}

/// Which numbers of `x` `[batch, key_value_heads, keys, head_width]` belong to padding.
fn padding(real: &[Range<usize>], x: &Tensor<4>) -> Tensor<4, Bool> {
    let [batch, _, keys, _] = x.dims();
    assert_eq!(
        real.len(),
        batch,
        "linformer attention: {} ranges of keys do not fit keys {:?}",
        real.len(),
        x.dims()
    );
    let padded = real
        .iter()
        .flat_map(|real| (0..keys).map(|key| !real.contains(&key)));
    let padded = TensorData::new(padded.collect::<Vec<bool>>(), [batch, 1, keys, 1]);
    Tensor::<4, Bool>::from_data(padded, &x.device()).expand(x.shape())
}
