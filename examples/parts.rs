//! Builds a model from parts, looks inside one pass, and saves it as a model folder.
//!
//! Run with `cargo run --release -p attentive --example parts`.

use attentive::model::{Extras, Input, Model, ModelConfig, Recorder, checkpoint};
use attentive::tensor::{Int, Tensor};

/// The same words as under `[model]` in a recipe.
const SETTINGS: &str = r#"{
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
    let config: ModelConfig = serde_json::from_str(SETTINGS)?;
    let device = attentive::tensor::device("cpu")?;
    let model = Model::new(&config, 1, &device)?;

    let ids = Tensor::<2, Int>::from_ints([[5, 17, 42, 7]], &device);
    let mut recorder = Recorder {
        keep_weights: true,
        ..Recorder::default()
    };
    let extras = Extras {
        observer: Some(&mut recorder),
        ..Extras::default()
    };
    let output = model.forward(Input::new(ids), extras);
    println!("logits {:?}", output.into_words().dims());
    for (layer, (_, weights)) in recorder.weights.iter().enumerate() {
        println!("attention weights of layer {layer} {:?}", weights.dims());
    }

    let folder = std::env::temp_dir().join("attentive-parts");
    checkpoint::save(&folder, &model, &checkpoint::SpecialTokens::default())?;
    let saved_as = checkpoint::describe(&folder)?.model_type;
    println!("saved {} as a {saved_as} model", folder.display());
    Ok(())
}
