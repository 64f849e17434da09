//! Parity with PyTorch: ten AdamW steps from the same weights on the same ids, against `fixtures/`.

use std::path::PathBuf;

use attentive_checkpoint::{self as checkpoint, TensorFile};
use attentive_model::{Purpose, Randomness};
use attentive_testing::{GRADIENTS, Scale, assert_close, assert_near, ulps};
use attentive_training::{AdamW, AdamWConfig, Gradients, ObjectiveConfig};
use burn::tensor::Device;

const STEPS: usize = 10;
const LEARNING_RATE: f64 = 1e-3;
/// What ten updates move a weight by at most, since the ratio of AdamW's moments is at most one. Weights have the errors of these
/// updates; rounding the largest weight, 2.2, at each step adds a few hundredths of [`UPDATE_ERROR`].
const UPDATES: Scale = Scale::Of(LEARNING_RATE * STEPS as f64);
/// An update has the relative error of its own gradient, which may be a hundredth of the largest, to which `GRADIENTS` is relative.
const UPDATE_ERROR: f64 = 100.0 * GRADIENTS;
/// The loss is a mean of log-probabilities, whose errors are those of logits. That is `VALUES` less four ulps, so that llama-tied's
/// losses of ten differ by at most 1e-4.
const LOSSES: f64 = ulps(80);

#[test]
fn ten_adamw_steps_match_pytorch() {
    for name in ["gpt2", "llama", "llama-tied"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures")
            .join(name);
        let device = Device::flex().autodiff();
        let (mut model, _) = checkpoint::load(&folder, &device).unwrap();
        let file = TensorFile::open(&folder.join("golden.safetensors")).unwrap();
        let [steps, rows, length] = file.shape("training.ids").unwrap() else {
            panic!("training.ids has three axes");
        };
        let ids: Vec<u32> = file
            .integers("training.ids")
            .unwrap()
            .into_iter()
            .map(|id| id as u32)
            .collect();
        let losses = file.floats("training.losses").unwrap();
        let norms = file.floats("training.gradient_norms").unwrap();
        let objective = ObjectiveConfig::default();
        let mut optimizer = AdamW::new(&AdamWConfig {
            learning_rate: LEARNING_RATE,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            max_grad_norm: 1.0,
        });
        assert_eq!((*steps, losses.len()), (STEPS, STEPS));
        for (step, ids) in ids.chunks(rows * length).enumerate() {
            let windows: Vec<&[u32]> = ids.chunks(*length).collect();
            let batch = objective.prepare(&windows, &device);
            let mut randomness = Randomness::new(Purpose::Dropout, 0, step as u64);
            let loss = objective.loss(&model, batch, &mut randomness);
            let (gradients, norm) = Gradients::backward(&loss, &model).clipped(1.0);
            model = optimizer.update(model, gradients, 1.0);
            let loss = loss.into_scalar::<f32>();
            let what = |what: &str| format!("{name}: {what} {step}");
            assert_near(what("loss"), loss, losses[step], Scale::Largest, LOSSES);
            let norms = norms[step];
            assert_near(
                what("gradient norm"),
                norm,
                norms,
                Scale::Largest,
                GRADIENTS,
            );
        }
        let folder = tempfile::tempdir().unwrap();
        checkpoint::save_weights(folder.path(), &model).unwrap();
        let ours = TensorFile::from_folder(folder.path()).unwrap();
        let finals = file.names();
        let finals = finals
            .iter()
            .filter_map(|name| name.strip_prefix("training.final."));
        let mut compared = 0;
        for saved_name in finals {
            let theirs = file
                .floats(&format!("training.final.{saved_name}"))
                .unwrap();
            let ours = ours.floats(saved_name).unwrap();
            let what = format!("{name}: {saved_name}");
            assert_close(what, &ours, &theirs, UPDATES, UPDATE_ERROR);
            compared += 1;
        }
        assert_eq!(compared, 3, "{name}");
    }
}
