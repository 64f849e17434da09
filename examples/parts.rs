//! Builds a model from parts, records its attention weights, and saves it as a model folder.
//!
//! Run with `cargo run --release -p attentive --example parts`.

use attentive::checkpoint;
use attentive::model::{ForwardOptions, Input, Model, ModelConfig, Recorder};
use attentive::tensor::{Int, Tensor};

/// A model config, as under `[model]` in a recipe.
const CONFIG: &str = r#"{
    "vocabulary": 100, "length": 32, "width": 64,
    "positions": { "kind": "rotary" },
    "final_norm": { "kind": "rms" },
    "blocks": [{
        "repeat": 3,
        "norm": { "kind": "rms" },
        "attention": { "kind": "full", "heads": 4, "key_value_heads": 2 },
        "feed_forward": { "kind": "gated", "hidden_width": 128 }
    }] }"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config: ModelConfig = serde_json::from_str(CONFIG)?;
    let device = attentive::tensor::device("cpu")?;
    let model = Model::new(&config, 1, &device)?;

    let ids = Tensor::<2, Int>::from_ints([[5, 17, 42, 7]], &device);
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let options = ForwardOptions {
        observer: Some(&mut recorder),
        ..ForwardOptions::default()
    };
    let output = model.forward(Input::new(ids), options);
    println!("logits {:?}", output.into_logits().dims());
    for (layer, (_, weights)) in recorder.weights.iter().enumerate() {
        println!("attention weights of layer {layer} {:?}", weights.dims());
    }

    let folder = std::env::temp_dir().join("attentive-parts");
    checkpoint::save(
        &folder,
        &model,
        &attentive::generation::SpecialTokens::default(),
    )?;
    let saved_as = checkpoint::describe(&folder)?.model_type;
    println!("saved {} as a {saved_as} model", folder.display());
    Ok(())
}
