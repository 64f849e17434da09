//! Folders in the layout of opus-mt: source.spm, target.spm, vocab.json, and no tokenizer.json.

use std::path::Path;

use attentive::checkpoint::{self};
use attentive::generation::SpecialTokens;
use attentive::model::{Model, ModelConfig};
use attentive::text::Tokenizer;
use serde_json::Value;

use crate::program::succeed;

/// A model with the fixture's architecture and this vocabulary size.
fn model(vocabulary: usize) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/marian");
    let mut config: ModelConfig = checkpoint::describe(&folder).unwrap().config;
    config.stack.vocabulary = vocabulary;
    config.encoder.as_mut().unwrap().vocabulary = vocabulary;
    Model::new(&config, 5, &attentive::tensor::device("cpu").unwrap()).unwrap()
}

#[test]
fn texts_are_translated_with_the_folder_s_own_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let (path, destination) = (folder.path(), folder.path().join("opus"));
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/folders/marian");
    let tokenizer = Tokenizer::from_folder(&files).unwrap().unwrap();
    let special = tokenizer.special_tokens();
    let id = |it: &Option<attentive::text::SpecialToken>| it.as_ref().unwrap().id;
    let ids = SpecialTokens {
        bos: None,
        eos: vec![id(&special.eos)],
        decoder_start: Some(id(&special.pad)),
        pad: Some(id(&special.pad)),
    };
    checkpoint::save(&destination, &model(tokenizer.vocabulary()), &ids).unwrap();
    assert_eq!(
        checkpoint::describe(&destination).unwrap().model_type,
        "marian"
    );
    for name in [
        "source.spm",
        "target.spm",
        "vocab.json",
        "tokenizer_config.json",
    ] {
        std::fs::copy(files.join(name), destination.join(name)).unwrap();
    }
    let run = |folder: &str| -> Value {
        let arguments = [
            "translate",
            folder,
            ">>de<< the dog",
            "--max-new-tokens",
            "8",
            "--json",
        ];
        serde_json::from_slice(&succeed(path, &arguments).stdout).unwrap()
    };
    let translated = run("opus");
    let source = tokenizer.encode(">>de<< the dog").unwrap();
    assert_eq!(source[0], tokenizer.id(">>de<<").unwrap());
    let source: Vec<String> = source.iter().map(u32::to_string).collect();
    let source = source.join(",");
    let arguments = [
        "generate",
        "opus",
        "--ids",
        &source,
        "--beams",
        "4",
        "--max-new-tokens",
        "8",
        "--json",
    ];
    let generated: Value = serde_json::from_slice(&succeed(path, &arguments).stdout).unwrap();
    assert_eq!(translated["translation"], generated["texts"][0]["text"]);
    assert_ne!(translated["translation"], "");
    succeed(path, &["convert", "opus", "--out", "converted"]);
    assert_eq!(run("converted"), translated);
}
