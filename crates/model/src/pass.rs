//! What all layers of one pass share: made once, handed down beside the hidden state.

use std::ops::Range;

use attentive_tensor::{Randomness, RotaryAngles};
use burn::tensor::Tensor;

use crate::{Cache, Observer, Site};

/// The companions of the hidden state on its way through the layers.
#[derive(Default)]
pub struct Pass<'a> {
    /// Where padding leaves real positions, one range per batch row, counted from the first position of the cache.
    pub real: Option<Vec<Range<usize>>>,
    /// The angles of rotary positions, where the model has them.
    pub rotary: Option<RotaryAngles>,
    /// What the layers kept of earlier passes.
    pub cache: Option<&'a mut Cache>,
    /// Who looks on.
    pub observer: Option<&'a mut dyn Observer>,
    /// The source of dropout; absent outside training.
    pub randomness: Option<&'a mut Randomness>,
}

impl Pass<'_> {
    /// Shows `value` to the observer, if there is one.
    pub fn observe(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        match self.observer.as_deref_mut() {
            Some(observer) => observer.hidden(site, value),
            None => value,
        }
    }
}
