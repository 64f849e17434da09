//! Gradient accumulation is equivalent to one large batch.

use std::path::PathBuf;

use attentive_checkpoint as checkpoint;
use attentive_model::{Purpose, Randomness};
use attentive_testing::{Scale, VALUES, assert_near, ulps};
use attentive_training::{Gradients, ObjectiveConfig};
use burn::tensor::Device;

#[test]
fn accumulated_micro_batches_equal_one_large_batch() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gpt2");
    let device = Device::flex().autodiff();
    let (model, _) = checkpoint::load(&folder, &device).unwrap();
    let ids: Vec<u32> = (0..4 * 9).map(|i| i * i % 97).collect();
    let windows: Vec<&[u32]> = ids.chunks(9).collect();
    let objective = ObjectiveConfig::default();
    let pass = |windows: &[&[u32]]| {
        let batch = objective.prepare(windows, &device);
        let mut randomness = Randomness::new(Purpose::Dropout, 0, 0);
        let loss = objective.loss(&model, batch, &mut randomness);
        let gradients = Gradients::backward(&loss, &model);
        (loss.into_scalar::<f32>(), gradients)
    };
    let (loss, whole) = pass(&windows);
    let (first_loss, first) = pass(&windows[..2]);
    let (second_loss, second) = pass(&windows[2..]);
    let mean = (first_loss + second_loss) / 2.0;
    // Means of 32 losses of one sign: their partial sums grow evenly, with a root mean square of 1/√3 of the whole, so that their
    // rounding errors are 2 · √(32 / 3) = 6.5 ulps of it.
    assert_near("loss", mean, loss, Scale::Largest, ulps(8));
    let norm = whole.norm();
    assert!(norm > 0.0);
    let difference = whole
        .plus(first.plus(second).scaled(0.5).scaled(-1.0))
        .norm();
    assert_near("gradients", difference, 0.0, Scale::Of(norm), VALUES);
}
