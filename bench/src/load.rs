//! Time to load a checkpoint of half a gigabyte and compute the first logits, in a fresh process.

use std::path::PathBuf;

use attentive::checkpoint::{self};
use attentive::generation::Session;
use attentive::generation::SpecialTokens;
use attentive::model::attention::FullAttentionConfig;
use attentive::model::block::BlockConfig;
use attentive::model::feed_forward::GatedConfig;
use attentive::model::models::gpt2_small;
use attentive::model::positions::RotaryConfig;
use attentive::model::{Model, ModelConfig, NormConfig};
use attentive::tensor::Device;

use crate::report;

/// The checkpoint that both we and the PyTorch peer load, in the folder that `ATTENTIVE_BENCH_FOLDERS` names.
fn folder(work: &str) -> PathBuf {
    let folders = std::env::var_os("ATTENTIVE_BENCH_FOLDERS");
    let folders = folders.map_or_else(|| PathBuf::from("target/bench"), PathBuf::from);
    folders.join(work)
}

/// GPT-2 small, whose weights are saved transposed, or a Llama of 135 million parameters, whose weights are not.
fn config(work: &str) -> ModelConfig {
    if work == "load_gpt2" {
        return gpt2_small().without_dropout();
    }
    let attention = FullAttentionConfig::new(9).with_key_value_heads(3);
    let block =
        BlockConfig::pre_norm(attention, GatedConfig::new(1536)).with_norm(NormConfig::rms());
    ModelConfig::decoder(49_152, 2048, 576)
        .with_positions(RotaryConfig::default())
        .blocks(30, block)
        .with_final_norm(NormConfig::rms())
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
