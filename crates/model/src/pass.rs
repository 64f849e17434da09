//! What all layers of one pass share: made once, handed down beside the hidden state.

use std::ops::Range;

use attentive_tensor::{Randomness, RotaryAngles};
use burn::tensor::Tensor;

use crate::{Cache, DistanceBias, Memory, Observer, Site};

/// The companions of the hidden state on its way through the layers.
#[derive(Default)]
pub struct Pass<'a> {
    /// Where padding leaves real positions, one range per batch row, counted from the first position of the cache.
    pub real: Option<Vec<Range<usize>>>,
    /// The other sequence, where blocks look at one.
    pub memory: Option<Memory>,
    /// Which positions see all and are seen by all, in order, one list per batch row. Of use to Longformer's attention, which
    /// adds them to those of its settings.
    pub globals: Option<Vec<Vec<usize>>>,
    /// The angles of rotary positions, where the model has them.
    pub rotary: Option<RotaryAngles>,
    /// The biases by distance, where the positions are such. A layer asks for those of its own queries and keys.
    pub distance_bias: Option<DistanceBias>,
    /// Which tokens of the pass are real, row after row; all are where there is no padding.
    pub real_tokens: Option<Vec<bool>>,
    /// What layers add to the loss of training beside that of the predictions, each already weighted.
    pub auxiliary_losses: Vec<Tensor<1>>,
    /// What the layers kept of earlier passes.
    pub cache: Option<&'a mut Cache>,
    /// Who looks on.
    pub observer: Option<&'a mut dyn Observer>,
    /// The source of dropout; absent outside training.
    pub randomness: Option<&'a mut Randomness>,
}

impl Pass<'_> {
    /// The sum of what layers add to the loss of training, if any adds something.
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
