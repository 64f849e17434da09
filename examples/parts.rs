//! Builds a model from parts, records its attention weights, and saves it as a model folder.
//!
//! Run with `cargo run --release -p attentive --example parts`.

use attentive::checkpoint;
use attentive::model::attention::FullAttentionConfig;
use attentive::model::block::BlockConfig;
use attentive::model::feed_forward::GatedConfig;
use attentive::model::positions::RotaryConfig;
use attentive::model::{ForwardOptions, Input, Model, ModelConfig, NormConfig, Recorder};
use attentive::tensor::{Int, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let attention = FullAttentionConfig::new(4).with_key_value_heads(2);
    let block =
        BlockConfig::pre_norm(attention, GatedConfig::new(128)).with_norm(NormConfig::rms());
    let config = ModelConfig::decoder(100, 32, 64)
        .with_positions(RotaryConfig::default())
        .blocks(3, block)
        .with_final_norm(NormConfig::rms());
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
