//! Folders as opus-mt has them: source.spm, target.spm, vocab.json, and no tokenizer.json.

use std::path::Path;

use attentive::model::checkpoint::{self, SpecialTokens};
use attentive::model::{Model, ModelConfig};
use attentive::text::Tokenizer;
use serde_json::Value;

use crate::program::succeed;

/// The fixture's architecture with as many tokens as the tokenizer has.
fn model(tokens: usize) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/marian");
    let mut config: ModelConfig = checkpoint::describe(&folder).unwrap().config;
    config.vocabulary = tokens;
    config.encoder.as_mut().unwrap().vocabulary = tokens;
    Model::new(&config, 5, &attentive::tensor::device("cpu").unwrap()).unwrap()
}

#[test]
fn texts_are_translated_with_the_folder_s_own_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let (path, place) = (folder.path(), folder.path().join("opus"));
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/folders/marian");
    let tokenizer = Tokenizer::of_folder(&files).unwrap().unwrap();
    let special = tokenizer.special_tokens();
    let id = |it: &Option<attentive::text::SpecialToken>| it.as_ref().unwrap().id;
    let ids = SpecialTokens {
        beginning: None,
        end: vec![id(&special.end)],
        decoder_start: Some(id(&special.padding)),
        padding: Some(id(&special.padding)),
    };
    checkpoint::save(&place, &model(tokenizer.vocabulary()), &ids).unwrap();
    assert_eq!(checkpoint::describe(&place).unwrap().model_type, "marian");
    for name in [
        "source.spm",
        "target.spm",
        "vocab.json",
        "tokenizer_config.json",
    ] {
        std::fs::copy(files.join(name), place.join(name)).unwrap();
    }
    let run = |folder: &str| -> Value {
        let texts = [
            "translate",
            folder,
            ">>de<< the dog",
            "--max-tokens",
            "8",
            "--json",
        ];
        serde_json::from_slice(&succeed(path, &texts).stdout).unwrap()
    };
    let translated = run("opus");
    let source = tokenizer.encode(">>de<< the dog").unwrap();
    assert_eq!(source[0], tokenizer.id(">>de<<").unwrap());
    let source: Vec<String> = source.iter().map(u32::to_string).collect();
    let source = source.join(",");
    let found = [
        "generate",
        "opus",
        "--ids",
        &source,
        "--beams",
        "4",
        "--max-tokens",
        "8",
        "--json",
    ];
    let found: Value = serde_json::from_slice(&succeed(path, &found).stdout).unwrap();
    assert_eq!(translated["translation"], found["texts"][0]["text"]);
    assert_ne!(translated["translation"], "");
    succeed(path, &["convert", "opus", "--out", "again"]);
    assert_eq!(run("again"), translated);
}
