//! Generation settings of a folder's generation_config.json: applied, overridden by options, refused, or kept by `convert`.

use std::path::{Path, PathBuf};

use attentive::checkpoint::TensorFile;
use serde_json::{Value, json};

use crate::program::{succeed, transcript};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

/// Copies a fixture to `folder/model`, with these settings added to its generation_config.json.
fn with_settings(folder: &Path, name: &str, settings: &Value) {
    let model = folder.join("model");
    std::fs::create_dir_all(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), model.join(file)).unwrap();
    }
    let file = "generation_config.json";
    let bytes = std::fs::read(fixture(name).join(file)).unwrap();
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    for (key, value) in settings.as_object().unwrap() {
        json[key] = value.clone();
    }
    std::fs::write(model.join(file), json.to_string()).unwrap();
}

fn ids(folder: &Path, options: &[&str]) -> Value {
    let first = ["generate", "model", "--json", "--max-new-tokens", "32"];
    let output = succeed(folder, &[&first, options].concat());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    json["ids"].clone()
}

#[test]
fn options_override_the_sampling_settings_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let golden = TensorFile::open(&fixture("llama").join("golden.safetensors")).unwrap();
    let prompt = golden.integers("prompt_ids").unwrap();
    let greedy = json!(golden.integers("greedy_ids").unwrap()[prompt.len()..]);
    let prompt: Vec<String> = prompt.iter().map(i64::to_string).collect();
    let prompt = prompt.join(",");
    let generate = |options: &[&str]| ids(path, &[&["--ids", &prompt], options].concat());

    with_settings(
        path,
        "llama",
        &json!({ "do_sample": false, "eos_token_id": 1 }),
    );
    assert_eq!(generate(&[]), greedy);
    assert_eq!(generate(&["--seed", "3"]), greedy);
    assert_ne!(generate(&["--temperature", "5", "--seed", "3"]), greedy);
    // An option that turns sampling on leaves the folder's other sampling settings in effect; so does an unset `do_sample`.
    for do_sample in [json!(false), Value::Null] {
        let settings = json!({ "do_sample": do_sample, "top_k": 1, "eos_token_id": 1 });
        with_settings(path, "llama", &settings);
        assert_eq!(generate(&["--temperature", "5", "--seed", "3"]), greedy);
        assert_eq!(generate(&["--seed", "3"]), greedy);
    }
    with_settings(
        path,
        "llama",
        &json!({ "do_sample": true, "top_k": 1, "eos_token_id": 1 }),
    );
    assert_eq!(generate(&["--seed", "3"]), greedy);
    assert_ne!(
        generate(&["--seed", "3", "--top-k", "20", "--temperature", "5"]),
        greedy
    );
    let hot = json!({ "do_sample": true, "temperature": 9.0, "top_h": 0.5, "eos_token_id": 1 });
    with_settings(path, "llama", &hot);
    assert_eq!(generate(&["--temperature", "0"]), greedy);
    with_settings(
        path,
        "llama",
        &json!({ "repetition_penalty": 1.6, "do_sample": false }),
    );
    assert_ne!(generate(&[]), greedy);
    let unpenalized = generate(&["--repetition-penalty", "1"]);
    let unpenalized = unpenalized.as_array().unwrap();
    assert!(!unpenalized.is_empty());
    assert_eq!(
        *unpenalized,
        greedy.as_array().unwrap()[..unpenalized.len()]
    );
}

#[test]
fn unsupported_settings_are_refused_by_commands_that_generate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut transcripts = Vec::new();
    let generate: &[&str] = &["generate", "model", "--ids", "5,9", "--max-new-tokens", "3"];
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
        let file = path.join("model/tokenizer.json");
        std::fs::write(file, tokenizer.unwrap().to_json().unwrap()).unwrap();
        transcripts.push(format!("{settings}"));
        transcripts.extend(commands.into_iter().map(|it| transcript(path, it)));
        // Commands that generate nothing ignore the settings.
        succeed(path, &["info", "model"]);
    }
    with_settings(path, "models/bart", &json!({ "do_sample": true }));
    transcripts.push(transcript(path, &["translate", "model", "a"]));
    // Values that are out of range are errors of the file.
    for settings in [
        json!({ "repetition_penalty": 0.0 }),
        json!({ "encoder_repetition_penalty": 0 }),
        json!({ "do_sample": true, "temperature": -1 }),
        json!({ "do_sample": true, "typical_p": 0 }),
        json!({ "bad_words_ids": [[]] }),
    ] {
        with_settings(path, "models/bart", &settings);
        transcripts.push(format!("{settings}\n{}", transcript(path, generate)));
    }
    insta::assert_snapshot!(transcripts.join("\n"));
}

#[test]
fn a_converted_model_keeps_the_generation_settings_of_its_folder() {
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
    // `convert` writes missing special tokens as null.
    before["bos_token_id"] = Value::Null;
    assert_eq!(before, after);
}
