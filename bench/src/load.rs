//! Time to load a checkpoint of half a gigabyte and compute the first logits, in a fresh process.

use std::path::PathBuf;

use attentive::checkpoint::{self};
use attentive::generation::Session;
use attentive::generation::SpecialTokens;
use attentive::model::{Model, ModelConfig};
use attentive::tensor::Device;
use serde_json::json;

use crate::report;

/// The checkpoint that both we and the PyTorch peer load, in the folder that `ATTENTIVE_BENCH_FOLDERS` names.
fn folder(work: &str) -> PathBuf {
    let folders = std::env::var_os("ATTENTIVE_BENCH_FOLDERS");
    let folders = folders.map_or_else(|| PathBuf::from("target/bench"), PathBuf::from);
    folders.join(work)
}

/// GPT-2 small, whose weights are saved transposed, or a Llama of 135 million parameters, whose weights are not.
fn config(work: &str) -> ModelConfig {
    let config = match work {
        "load_gpt2" => json!({
            "vocabulary": 50257, "length": 1024, "width": 768,
            "positions": { "kind": "learned" }, "final_norm": { "kind": "layer" },
            "blocks": [{
                "repeat": 12, "norm": { "kind": "layer" },
                "attention": { "kind": "full", "heads": 12, "bias": true, "output_bias": true },
                "feed_forward": { "kind": "plain", "hidden_width": 3072 }
            }]
        }),
        _ => json!({
            "vocabulary": 49152, "length": 2048, "width": 576,
            "positions": { "kind": "rotary", "theta": 10000.0 }, "final_norm": { "kind": "rms" },
            "blocks": [{
                "repeat": 30, "norm": { "kind": "rms" },
                "attention": { "kind": "full", "heads": 9, "key_value_heads": 3 },
                "feed_forward": { "kind": "gated", "hidden_width": 1536 }
            }]
        }),
    };
    serde_json::from_value(config).expect("the config is valid")
}

/// Saves the model with random weights, unless it already exists.
pub fn create(work: &str) {
    let folder = folder(work);
    if checkpoint::TensorFile::from_folder(&folder).is_err() {
        let model = Model::new(&config(work), 0, &Device::flex()).expect("the config is valid");
        let special = SpecialTokens::default();
        checkpoint::save(&folder, &model, &special).expect("the folder can be written");
    }
}

/// Loads the model and prefills eight tokens.
pub fn measure(work: &str) {
    let folder = folder(work);
    report(work, 1, 0, 1.0, || {
        let (model, _) = checkpoint::load(&folder, &Device::flex()).expect("the model was created");
        let logits = Session::new(&model).prefill(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            logits.len(),
            model.config().stack.vocabulary,
            "a logit for each token"
        );
    });
}
