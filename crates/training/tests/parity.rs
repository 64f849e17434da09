//! Parity with PyTorch: ten AdamW steps from the same weights on the same ids, against `fixtures/`.

use std::path::PathBuf;

use attentive_checkpoint::{self as checkpoint, TensorFile, model_tensors, saved_tensors};
use attentive_model::{Purpose, Randomness};
use attentive_testing::{GRADIENTS, Scale, VALUES, assert_close, assert_near};
use attentive_training::{AdamW, AdamWConfig, Gradients, ObjectiveConfig};
use burn::tensor::Device;

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
            learning_rate: 1e-3,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            max_grad_norm: 1.0,
        });
        assert_eq!((*steps, losses.len()), (10, 10));
        for (step, ids) in ids.chunks(rows * length).enumerate() {
            let windows: Vec<&[u32]> = ids.chunks(*length).collect();
            let batch = objective.prepare(&windows, &device);
            let mut randomness = Randomness::new(Purpose::Dropout, 0, step as u64);
            let loss = objective.loss(&model, batch, &mut randomness);
            let (gradients, norm) = Gradients::backward(&loss, &model).clipped(1.0);
            model = optimizer.update(model, gradients, 1.0);
            let loss = loss.into_scalar::<f32>();
            let what = |what: &str| format!("{name}: {what} {step}");
            assert_near(what("loss"), loss, losses[step], Scale::Largest, VALUES);
            let norms = norms[step];
            assert_near(
                what("gradient norm"),
                norm,
                norms,
                Scale::Largest,
                GRADIENTS,
            );
        }
        let ours = saved_tensors(model.config(), model_tensors(&model));
        let finals = file.names();
        let finals = finals
            .iter()
            .filter_map(|name| name.strip_prefix("training.final."));
        let mut compared = 0;
        for saved_name in finals {
            let theirs = file
                .floats(&format!("training.final.{saved_name}"))
                .unwrap();
            let ours = ours[saved_name].try_to_vec::<f32>().unwrap();
            let what = format!("{name}: {saved_name}");
            assert_close(what, &ours, &theirs, Scale::Largest, GRADIENTS);
            compared += 1;
        }
        assert_eq!(compared, 3, "{name}");
    }
}
