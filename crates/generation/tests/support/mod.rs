//! What several test files compare with.

use attentive_model::{ForwardOptions, Input, Model, ids_tensor};
use burn::tensor::Device;

/// The logits after `ids`, computed without a cache.
pub fn uncached(model: &Model, ids: &[u32]) -> Vec<f32> {
    let input = Input::new(ids_tensor(&[ids], &Device::flex()));
    let logits = model
        .forward(input, ForwardOptions::default())
        .into_logits();
    let last = logits.narrow(1, ids.len() - 1, 1);
    last.into_data().try_to_vec::<f32>().unwrap()
}
