//! From a folder of half a gigabyte to the first logits, in a process that has done nothing else.

use std::path::PathBuf;

use attentive::generation::Session;
use attentive::model::checkpoint::{self, SpecialTokens};
use attentive::tensor::Device;

use crate::{models, report};

/// The folder that both sides read, from the environment.
fn folder() -> PathBuf {
    let folder = std::env::var_os("ATTENTIVE_BENCH_FOLDER");
    folder.map_or_else(|| PathBuf::from("target/bench-load"), PathBuf::from)
}

/// Saves a GPT-2 of the small size with drawn weights, where there is none yet.
pub fn make() {
    let folder = folder();
    if checkpoint::TensorFile::of_folder(&folder).is_err() {
        let model = models::gpt2_small("tied");
        let special = SpecialTokens::default();
        checkpoint::save(&folder, &model, &special).expect("the folder can be written");
    }
}

/// Loads it and reads eight tokens.
pub fn measure(work: &str) {
    let folder = folder();
    report(work, 1, 0, 1.0, || {
        let (model, _) = checkpoint::load(&folder, &Device::flex()).expect("it was made before");
        let logits = Session::new(&model).read(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(logits.len(), 50257, "there is a score for each token");
    });
}
