//! `classify` with decoders, which find the end of a text by the pad token of config.json.

use std::path::Path;

use attentive_testing::{Scale, assert_near};
use serde_json::{Value, json};

use crate::program::succeed;

/// A GPT-2 classifier, whose config.json names this pad token, and a tokenizer of the words w0, w1, … that has none.
fn classifier(folder: &Path, pad_token: u32) {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/gpt2-classifier");
    std::fs::create_dir(folder).unwrap();
    let weights = "model.safetensors";
    std::fs::copy(fixture.join(weights), folder.join(weights)).unwrap();
    let json = std::fs::read_to_string(fixture.join("config.json")).unwrap();
    let mut json: Value = serde_json::from_str(&json).unwrap();
    json["pad_token_id"] = json!(pad_token);
    let vocabulary =
        (0..json["vocab_size"].as_u64().unwrap()).map(|id| (format!("w{id}"), json!(id)));
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": { "type": "WhitespaceSplit" },
        "model": {
            "type": "WordLevel", "unk_token": "w0",
            "vocab": vocabulary.collect::<serde_json::Map<_, _>>(),
        },
    });
    write(folder, "config.json", &json);
    write(folder, "tokenizer.json", &tokenizer);
}

fn write(folder: &Path, name: &str, json: &Value) {
    std::fs::write(folder.join(name), json.to_string()).unwrap();
}

fn classified(folder: &Path, model: &str, texts: &[&str]) -> Vec<Value> {
    let arguments = [&["classify", model, "--json"], texts].concat();
    let text = String::from_utf8(succeed(folder, &arguments).stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

const TEXTS: [&str; 2] = ["w5 w6 w8 w9 w10", "w9"];

#[test]
fn padding_is_found_by_the_pad_token_of_the_config() {
    let folder = tempfile::tempdir().unwrap();
    // A pad token in the vocabulary, and one outside of it.
    for (model, pad_token) in [("known", 7), ("unknown", 99_999)] {
        classifier(&folder.path().join(model), pad_token);
        let both = classified(folder.path(), model, &TEXTS);
        for (text, found) in TEXTS.into_iter().zip(both) {
            let alone = classified(folder.path(), model, &[text]).remove(0);
            let scores = |found: &Value| -> Vec<(String, f64)> {
                let classes = found["classes"].as_array().unwrap().iter();
                let score = |it: &Value| it["probability"].as_f64().unwrap();
                classes
                    .map(|it| (it["label"].to_string(), score(it)))
                    .collect()
            };
            for (one, other) in scores(&alone).iter().zip(scores(&found)) {
                assert_eq!(one.0, other.0);
                assert_near(text, one.1, other.1, Scale::One, 1e-6);
            }
        }
    }
}

#[test]
fn the_pad_token_of_generation_config_does_not_affect_classification() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    classifier(&model, 8);
    write(
        &model,
        "generation_config.json",
        &json!({ "pad_token_id": 9, "eos_token_id": 3 }),
    );
    succeed(folder.path(), &["convert", "model", "--out", "again"]);
    let config = |name: &str| -> Value {
        let text = std::fs::read_to_string(folder.path().join("again").join(name)).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["pad_token_id"].take()
    };
    assert_eq!(
        [config("config.json"), config("generation_config.json")],
        [8, 9]
    );
    let texts = ["w5 w6 w9", "w9"];
    let [before, after] = ["model", "again"].map(|it| classified(folder.path(), it, &texts));
    assert_eq!(before, after);
}
