//! What a folder's generation_config.json says of making texts: followed, gone before by options, refused, or carried along.

use std::path::{Path, PathBuf};

use attentive::model::checkpoint::TensorFile;
use serde_json::{Value, json};

use crate::program::{succeed, transcript};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

/// A copy of a fixture, `folder/model`, whose generation_config.json says these settings besides.
fn with_settings(folder: &Path, name: &str, settings: &Value) {
    let place = folder.join("model");
    std::fs::create_dir_all(&place).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), place.join(file)).unwrap();
    }
    let file = "generation_config.json";
    let said = std::fs::read(fixture(name).join(file)).unwrap();
    let mut words: Value = serde_json::from_slice(&said).unwrap();
    for (key, value) in settings.as_object().unwrap() {
        words[key] = value.clone();
    }
    std::fs::write(place.join(file), words.to_string()).unwrap();
}

fn ids(folder: &Path, options: &[&str]) -> Value {
    let first = ["generate", "model", "--json", "--max-tokens", "32"];
    let output = succeed(folder, &[&first, options].concat());
    let words: Value = serde_json::from_slice(&output.stdout).unwrap();
    words["ids"].clone()
}

#[test]
fn how_tokens_are_chosen_is_the_folder_s_affair_unless_options_say_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let golden = TensorFile::open(&fixture("llama").join("golden.safetensors")).unwrap();
    let prompt = golden.integers("prompt_ids").unwrap();
    let likeliest = json!(golden.integers("greedy_ids").unwrap()[prompt.len()..]);
    let prompt: Vec<String> = prompt.iter().map(i64::to_string).collect();
    let prompt = prompt.join(",");
    let draw = |options: &[&str]| ids(path, &[&["--ids", &prompt], options].concat());

    with_settings(
        path,
        "llama",
        &json!({ "do_sample": false, "eos_token_id": 1 }),
    );
    assert_eq!(draw(&[]), likeliest);
    assert_eq!(draw(&["--seed", "3"]), likeliest);
    assert_ne!(draw(&["--temperature", "5", "--seed", "3"]), likeliest);
    // A folder's numbers are taken where tokens are drawn against its word, or without one.
    for drawn in [json!(false), Value::Null] {
        let settings = json!({ "do_sample": drawn, "top_k": 1, "eos_token_id": 1 });
        with_settings(path, "llama", &settings);
        assert_eq!(draw(&["--temperature", "5", "--seed", "3"]), likeliest);
        assert_eq!(draw(&["--seed", "3"]), likeliest);
    }
    with_settings(
        path,
        "llama",
        &json!({ "do_sample": true, "top_k": 1, "eos_token_id": 1 }),
    );
    assert_eq!(draw(&["--seed", "3"]), likeliest);
    assert_ne!(
        draw(&["--seed", "3", "--top-k", "20", "--temperature", "5"]),
        likeliest
    );
    let wild = json!({ "do_sample": true, "temperature": 9.0, "top_h": 0.5, "eos_token_id": 1 });
    with_settings(path, "llama", &wild);
    assert_eq!(draw(&["--temperature", "0"]), likeliest);
    with_settings(
        path,
        "llama",
        &json!({ "repetition_penalty": 1.6, "do_sample": false }),
    );
    assert_ne!(draw(&[]), likeliest);
    let left = draw(&["--repetition-penalty", "1"]);
    let left = left.as_array().unwrap();
    assert_eq!(*left, likeliest.as_array().unwrap()[..left.len()]);
}

#[test]
fn what_cannot_be_followed_is_refused_where_texts_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut screens = Vec::new();
    let generate: &[&str] = &["generate", "model", "--ids", "5,9", "--max-tokens", "3"];
    for (settings, commands) in [
        (
            json!({ "guidance_scale": 1.5 }),
            vec![generate, &["translate", "model", "a"]],
        ),
        (
            json!({ "do_sample": true, "eta_cutoff": 0.1 }),
            vec![generate],
        ),
        (json!({ "do_sample": true, "num_beams": 3 }), vec![generate]),
        (
            json!({ "num_return_sequences": 2 }),
            vec![generate, &["translate", "model", "a"]],
        ),
        (
            json!({ "max_length": 1 }),
            vec![&["generate", "model", "--ids", "5,9"]],
        ),
    ] {
        with_settings(path, "models/bart", &settings);
        let tokenizer = attentive::text::Tokenizer::train(
            &attentive::text::TokenizerConfig::Characters {},
            &["ab".to_owned()],
        );
        let place = path.join("model/tokenizer.json");
        std::fs::write(place, tokenizer.unwrap().to_json().unwrap()).unwrap();
        screens.push(format!("{settings}"));
        screens.extend(commands.into_iter().map(|it| transcript(path, it)));
        // Who makes no text does not mind.
        succeed(path, &["info", "model"]);
    }
    with_settings(path, "models/bart", &json!({ "do_sample": true }));
    screens.push(transcript(path, &["translate", "model", "a"]));
    // What no text can be made with is a mistake of the file.
    for settings in [
        json!({ "repetition_penalty": 0.0 }),
        json!({ "encoder_repetition_penalty": 0 }),
        json!({ "do_sample": true, "temperature": -1 }),
        json!({ "do_sample": true, "typical_p": 0 }),
        json!({ "bad_words_ids": [[]] }),
    ] {
        with_settings(path, "models/bart", &settings);
        screens.push(format!("{settings}\n{}", transcript(path, generate)));
    }
    insta::assert_snapshot!(screens.join("\n"));
}

#[test]
fn a_converted_model_keeps_all_that_its_folder_says_of_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let settings = json!({
        "num_beams": 6, "renormalize_logits": true, "bad_words_ids": [[64]], "no_repeat_ngram_size": 0,
        "guidance_scale": 1.5, "cache_implementation": "static", "suppress_tokens": [3], "temperature": 0.6,
        "sequence_bias": [[[4, 5], -2.0]], "somebody's": { "own": [1, null] }, "top_h": null,
        "begin_suppress_tokens": [], "eos_token_id": [0], "forced_eos_token_id": [0]
    });
    with_settings(path, "models/marian", &settings);
    succeed(path, &["convert", "model", "--out", "again"]);
    let read = |name: &str| -> Value {
        let file = path.join(name).join("generation_config.json");
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    };
    let (mut before, after) = (read("model"), read("again"));
    // What no token is, is said.
    before["bos_token_id"] = Value::Null;
    assert_eq!(before, after);
}
