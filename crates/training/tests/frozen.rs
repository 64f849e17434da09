//! Frozen parameters during training: the rotations of LSH attention, and the random features of Performer, which are
//! resampled periodically.

use std::collections::HashMap;

use attentive_checkpoint::SpecialTokens;
use attentive_checkpoint::{self as checkpoint, model_tensors};
use attentive_model::{Model, ModelConfig, Purpose, Randomness, parameters};
use attentive_training::{AdamW, AdamWConfig, Gradients, ObjectiveConfig, TrainingState};
use burn::module::Module;
use burn::tensor::{Device, TensorData};

const ROTATIONS: &str = "stack.blocks.0.attention.body.rotations";

fn config() -> ModelConfig {
    let json = r#"{ "vocabulary": 23, "length": 12, "width": 16, "positions": { "kind": "learned" },
        "blocks": [{ "norm": { "kind": "layer" },
            "attention": { "kind": "reformer", "heads": 2, "buckets": 4, "hashes": 2, "chunk": 4, "seed": 7 },
            "feed_forward": { "kind": "plain", "hidden_width": 24 } }] }"#;
    serde_json::from_str(json).unwrap()
}

fn optimizer_config() -> AdamWConfig {
    serde_json::from_str(r#"{ "learning_rate": 0.01, "weight_decay": 0.5 }"#).unwrap()
}

fn values(model: &Model, name: &str) -> Vec<f32> {
    let data: TensorData = model_tensors(model).remove(name).unwrap();
    data.try_to_vec().unwrap()
}

/// One step on a fixed batch; returns the model, its loss before the step, and the names of the parameters with a gradient.
fn step(model: Model, optimizer: &mut AdamW) -> (Model, f32, Vec<String>) {
    let ids: Vec<u32> = (0..2 * 13).map(|i| i * i % 23).collect();
    let windows: Vec<&[u32]> = ids.chunks(13).collect();
    let objective = ObjectiveConfig::default();
    let batch = objective.prepare(&windows, &model.device());
    let mut randomness = Randomness::new(Purpose::Dropout, 0, 0);
    let loss = objective.loss(&model, batch, &mut randomness);
    let gradients = Gradients::backward(&loss, &model);
    let (parts, _) = gradients.clone().into_parts();
    let names = parameters(&model).into_iter().zip(parts);
    let trainable = names.filter(|(_, part)| part.is_some());
    let trainable = trainable.map(|(parameter, _)| parameter.name).collect();
    let model = optimizer.update(model, gradients, 1.0);
    (model, loss.into_scalar::<f32>(), trainable)
}

/// Trains for some steps; all but the rotations must change, and the loss must fall.
fn train(mut model: Model, optimizer: &mut AdamW) -> Model {
    let before: HashMap<String, TensorData> = model_tensors(&model).into_iter().collect();
    let mut losses = Vec::new();
    for _ in 0..20 {
        let (next, loss, trainable) = step(model, optimizer);
        assert!(!trainable.iter().any(|name| name == ROTATIONS));
        assert_eq!(trainable.len(), before.len() - 1);
        model = next;
        losses.push(loss);
    }
    assert!(losses[19] < 0.8 * losses[0], "{losses:?}");
    for (name, data) in model_tensors(&model) {
        assert_eq!(data == before[&name], name == ROTATIONS, "{name}");
    }
    model
}

#[test]
fn training_leaves_frozen_parameters_unchanged() {
    let device = Device::flex().autodiff();
    let model = Model::new(&config(), 3, &device).unwrap();
    train(model, &mut AdamW::new(&optimizer_config()));
}

#[test]
fn frozen_parameters_stay_frozen_between_training_and_inference() {
    let model = Model::new(&config(), 3, &Device::flex()).unwrap();
    let model = train(model.train(), &mut AdamW::new(&optimizer_config()));
    train(model.valid().train(), &mut AdamW::new(&optimizer_config()));
}

#[test]
fn frozen_parameters_are_saved_and_stay_frozen_when_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex().autodiff();
    let mut other_seed = serde_json::to_value(config()).unwrap();
    other_seed["blocks"][0]["attention"]["seed"] = 8.into();
    let other: ModelConfig = serde_json::from_value(other_seed).unwrap();
    let model = Model::new(&config(), 3, &device).unwrap();
    let rotations = values(&model, ROTATIONS);
    assert_ne!(
        rotations,
        values(&Model::new(&other, 3, &device).unwrap(), ROTATIONS)
    );
    assert_eq!(
        rotations,
        values(&Model::new(&config(), 4, &device).unwrap(), ROTATIONS)
    );

    checkpoint::save(folder.path(), &model, &SpecialTokens::default()).unwrap();
    let (loaded, _) = checkpoint::load(folder.path(), &device).unwrap();
    assert_eq!(rotations, values(&loaded, ROTATIONS));
    let mut optimizer = AdamW::new(&optimizer_config());
    let trained = train(loaded, &mut optimizer);

    let state = TrainingState {
        step: 20,
        best: None,
        fingerprint: 1,
    };
    let path = folder.path().join("last.safetensors");
    state.save(&path, &trained, &optimizer).unwrap();
    let saved = TrainingState::open(&path).unwrap();
    // Rotations of another seed are replaced by those of the file.
    let fresh = Model::new(&other, 3, &device).unwrap();
    let (_, restored, mut restored_optimizer) = saved.restore(fresh, &optimizer_config()).unwrap();
    assert_eq!(rotations, values(&restored, ROTATIONS));
    let (next, loss, _) = step(trained, &mut optimizer);
    let (resumed, resumed_loss, _) = step(restored, &mut restored_optimizer);
    assert_eq!(loss, resumed_loss);
    assert_eq!(model_tensors(&next), model_tensors(&resumed));
}

/// Features are resampled at the configured steps, are a function of the step, and have no gradient.
#[test]
fn features_are_resampled_when_due() {
    const FEATURES: &str = "stack.blocks.0.attention.body.pattern.features";
    let mut config = config();
    let json = r#"{ "kind": "performer", "heads": 2, "features": 12, "resample_every": 3 }"#;
    config.stack.blocks[0].attention = serde_json::from_str(json).unwrap();
    let device = Device::flex().autodiff();
    let new = || Model::new(&config, 1, &device).unwrap();
    let mut optimizer = AdamW::new(&optimizer_config());
    let mut model = new();
    let mut seen = Vec::new();
    for number in 0..7 {
        model = model.resample_features(number);
        seen.push(values(&model, FEATURES));
        let (next, _, trainable) = step(model, &mut optimizer);
        assert!(!trainable.iter().any(|name| name == FEATURES));
        model = next;
    }
    let changes: Vec<bool> = seen.windows(2).map(|pair| pair[0] != pair[1]).collect();
    assert_eq!(changes, [false, false, true, false, false, true]);
    assert_eq!(seen[0], values(&new(), FEATURES));
    assert_eq!(
        seen[6],
        values(&new().resample_features(6), FEATURES),
        "a resumed run samples the same"
    );
}
