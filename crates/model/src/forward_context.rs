//! What all layers of one forward pass share, passed along with the hidden state.

use std::ops::Range;

use attentive_tensor::{Randomness, RotaryAngles};
use burn::tensor::Tensor;

use crate::attention::Memory;
use crate::positions::RelativePositionBias;
use crate::{Cache, Observer, Site};

/// The shared state of one forward pass.
#[derive(Default)]
pub struct ForwardContext<'a> {
    /// The range of positions of each batch row that are not padding, counted from the first position of the cache; all where
    /// absent.
    pub non_padding: Option<Vec<Range<usize>>>,
    /// The keys and values of cross-attention.
    pub memory: Option<Memory>,
    /// Positions with global attention (they attend to all and all attend to them), sorted, one list per batch row. Longformer
    /// attention adds them to those of its settings.
    pub globals: Option<Vec<Vec<usize>>>,
    /// The angles of rotary position embeddings, where the model has them.
    pub rotary: Option<RotaryAngles>,
    /// The relative position bias, where the model has one; each layer slices it for its own queries and keys.
    pub relative_position_bias: Option<RelativePositionBias>,
    /// Which tokens of this pass are not padding, row after row; all where absent.
    pub token_mask: Option<Vec<bool>>,
    /// Losses of layers that training adds to its own, each already weighted.
    pub auxiliary_losses: Vec<Tensor<1>>,
    /// The KV cache.
    pub cache: Option<&'a mut Cache>,
    /// Sees and may replace hidden states and attention weights.
    pub observer: Option<&'a mut dyn Observer>,
    /// The generator of dropout masks; absent outside training.
    pub randomness: Option<&'a mut Randomness>,
}

impl ForwardContext<'_> {
    /// Takes the sum of the auxiliary losses, if there are any.
    pub fn auxiliary_loss(&mut self) -> Option<Tensor<1>> {
        let losses = std::mem::take(&mut self.auxiliary_losses);
        losses.into_iter().reduce(|sum, loss| sum + loss)
    }

    /// Shows `value` to the observer, if there is one.
    pub fn observe(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        match self.observer.as_deref_mut() {
            Some(observer) => observer.hidden(site, value),
            None => value,
        }
    }
}
