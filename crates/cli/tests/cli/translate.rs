//! `translate`, and `generate` of encoder-decoders and with beams: ids against transformers, and transcripts.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use attentive::checkpoint::TensorFile;
use attentive::text::{Tokenizer, TokenizerConfig};
use attentive_testing::{SCORES, Scale, assert_near, ulps};
use serde_json::{Value, json};

use crate::program::{attentive, succeed, transcript};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/models")
        .join(name)
}

/// Copies a fixture to `folder/name`, with a character tokenizer.
fn with_tokenizer(folder: &Path, name: &str) {
    let destination = folder.join(name);
    std::fs::create_dir(&destination).unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), destination.join(file)).unwrap();
    }
    let characters = "abcdefghijklmnopqrstuvwxyz .,!?".to_owned();
    let tokenizer = Tokenizer::train(&TokenizerConfig::Characters {}, &[characters]).unwrap();
    let text = tokenizer.to_json().unwrap();
    std::fs::write(destination.join("tokenizer.json"), text).unwrap();
}

/// Adds settings to the generation_config.json of `folder`.
fn configure(folder: &Path, settings: &Value) {
    let path = folder.join("generation_config.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (key, value) in settings.as_object().unwrap() {
        json[key] = value.clone();
    }
    std::fs::write(path, json.to_string()).unwrap();
}

fn joined(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    ids.join(",")
}

fn parsed(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = succeed(folder, arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The generated tokens of a golden row, up to the end token.
fn generated(row: &[i64], end: i64) -> Vec<i64> {
    row[1..]
        .iter()
        .copied()
        .take_while(|id| *id != end)
        .collect()
}

#[test]
fn without_options_an_encoder_decoder_decodes_greedily() {
    for name in ["bart", "t5", "marian"] {
        let model = fixture(name);
        let golden = TensorFile::open(&model.join("golden.safetensors")).unwrap();
        let source = joined(&golden.integers("prompt_ids").unwrap());
        let model = model.to_str().unwrap();
        let arguments = [
            "generate",
            model,
            "--ids",
            &source,
            "--max-new-tokens",
            "32",
        ];
        let output = succeed(Path::new("."), &arguments);
        let shown = String::from_utf8(output.stdout).unwrap();
        let expected = golden.integers("greedy_ids").unwrap();
        assert_eq!(
            shown.trim(),
            joined(&expected[1..]).replace(',', " "),
            "{name}"
        );
    }
}

#[test]
fn beam_search_follows_options_and_generation_config() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    with_tokenizer(path, "bart");
    std::fs::remove_file(path.join("bart/tokenizer.json")).unwrap();
    let golden = TensorFile::open(&fixture("bart").join("golden.safetensors")).unwrap();
    let source = golden.integers("beams.input_ids").unwrap();
    let source = joined(&source[..11]);
    let expect = |name: &str, arguments: &[&str]| {
        let first = [
            "generate", "bart", "--json", "--return", "4", "--ids", &source,
        ];
        let json = &parsed(path, &[&first, arguments].concat())[0];
        let ids = golden.integers(&format!("beams.{name}.ids")).unwrap();
        let width = golden.shape(&format!("beams.{name}.ids")).unwrap()[1];
        let scores = golden.floats(&format!("beams.{name}.scores")).unwrap();
        for (i, text) in json["texts"].as_array().unwrap().iter().enumerate() {
            let row = &ids[i * width..][..width];
            assert_eq!(text["ids"], json!(generated(row, 2)), "{name}");
            let score = text["score"].as_f64().unwrap();
            assert_near(name, score, scores[i], Scale::EachOrOne, SCORES);
        }
        assert_eq!(json["texts"].as_array().unwrap().len(), 4);
    };
    let four = ["--beams", "4", "--max-new-tokens", "24"];
    expect("plain", &four);
    expect("long", &[&four[..], &["--length-penalty", "2"]].concat());
    expect("short", &[&four[..], &["--length-penalty", "-1"]].concat());
    expect(
        "early",
        &[&four[..], &["--early-stopping", "true"]].concat(),
    );
    let never = ["--early-stopping", "never", "--length-penalty", "0.5"];
    expect("never", &[&four[..], &never].concat());
    let settings = json!({ "num_beams": 4, "early_stopping": true, "max_length": 25 });
    configure(&path.join("bart"), &settings);
    expect("early", &[]);
    expect("plain", &["--early-stopping", "false"]);
    configure(&path.join("bart"), &json!({ "forced_eos_token_id": 2 }));
    expect("forced", &[]);
    // Sampling options override beam search of the folder.
    let seeded = [
        "generate", "bart", "--json", "--ids", &source, "--seed", "3",
    ];
    let sampled = [&seeded[..], &["--temperature", "1"]].concat();
    assert_eq!(parsed(path, &sampled)[0]["seed"], 3);
    // A seed alone does not turn on sampling.
    expect("forced", &["--seed", "3"]);
}

#[test]
fn beam_search_works_for_decoders_too() {
    let model = fixture("bert-generation-decoder");
    let model = model.to_str().unwrap();
    let json = &parsed(
        Path::new("."),
        &[
            "generate",
            model,
            "--ids",
            "5,9",
            "--beams",
            "3",
            "--max-new-tokens",
            "6",
            "--json",
        ],
    )[0];
    assert_eq!(json["texts"].as_array().unwrap().len(), 1);
    assert_eq!(json["beams"], 3);
}

#[test]
fn translations_do_not_depend_on_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    with_tokenizer(path, "t5");
    let lines = "a small fox.\n\nthe dog sleeps, and the fox runs!\nwhy?\n";
    std::fs::write(path.join("lines.txt"), lines).unwrap();
    let translate = |arguments: &[&str]| {
        let first = ["translate", "t5", "--json", "--max-new-tokens", "12"];
        parsed(path, &[&first, arguments].concat())
    };
    let one = translate(&["--file", "lines.txt", "--batch-size", "1"]);
    let all = translate(&["--file", "lines.txt"]);
    assert_eq!(one.len(), 4);
    for ((one, all), line) in one.iter().zip(&all).zip(lines.lines()) {
        assert_eq!(one["source"], line);
        assert_eq!(one["translation"], all["translation"]);
        match line {
            "" => assert_eq!(
                *one,
                json!({ "source": "", "translation": "", "score": null })
            ),
            _ => {
                let [one, all] = [one, all].map(|it| it["score"].as_f64().unwrap());
                // As `SCORES`, for the logits of this model: at most 2.5.
                assert_near(line, one, all, Scale::EachOrOne, ulps(25));
            }
        }
    }
    let texts = translate(&["why?", "a small fox."]);
    assert_eq!(texts[0]["translation"], one[3]["translation"]);
    assert_eq!(texts[1]["translation"], one[0]["translation"]);
    // Four beams are the default of `translate`.
    let beam_search = [
        "generate",
        "t5",
        "--prompt",
        "why?",
        "--beams",
        "4",
        "--max-new-tokens",
        "12",
        "--json",
    ];
    assert_eq!(
        parsed(path, &beam_search)[0]["texts"][0]["text"],
        one[3]["translation"]
    );
    // The prefix is prepended to the source, but not to the output.
    let prefixed = translate(&["--prefix", "wh", "y?"]);
    assert_eq!(prefixed[0]["translation"], one[3]["translation"]);
    assert_eq!(prefixed[0]["source"], "y?");

    let mut program = attentive(path, &["translate", "t5", "--max-new-tokens", "12"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    program
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = program.wait_with_output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let shown: Vec<&str> = shown.lines().collect();
    let expected: Vec<&str> = one
        .iter()
        .map(|it| it["translation"].as_str().unwrap())
        .collect();
    assert_eq!(shown, expected);
}

#[test]
fn errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    with_tokenizer(path, "bart");
    with_tokenizer(path, "bert-generation-decoder");
    let bare = fixture("bart")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    std::fs::write(path.join("blank.txt"), "\n \n").unwrap();
    std::fs::write(path.join("latin1.txt"), b"caf\xe9").unwrap();
    std::fs::write(
        path.join("long.txt"),
        format!("short\n{}\n", "a".repeat(43)),
    )
    .unwrap();
    let run = |arguments: &[&str]| transcript(path, arguments).replace(&bare, "bare");
    let encoder = fixture("bert")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let mut transcripts = vec![
        run(&["translate", "bert-generation-decoder", "a"]),
        run(&["translate", &bare, "a"]),
        run(&["translate", "bart", "a", ""]),
        run(&["translate", "bart", "--file", "blank.txt"]),
        run(&["translate", "bart", "--file", "latin1.txt"]),
        run(&["translate", "bart", "--file", "missing.txt"]),
        run(&["translate", "bart", "--file", "long.txt"]),
        run(&["translate", "bart", "A"]),
        run(&["translate", "bart"]),
        run(&["translate", "bart", "a", "--file", "long.txt"]),
        run(&["translate", "bart", "a", "--batch-size", "0"]),
        run(&["translate", "bart", "a", "--beams", "0"]),
        run(&["translate", "bart", "a", "--early-stopping", "soon"]),
        run(&["generate", "bart", "--prompt", ""]),
        run(&["generate", "bart", "--ids", "73"]),
        run(&[
            "generate",
            "bart",
            "--ids",
            "5",
            "--beams",
            "4",
            "--temperature",
            "1",
        ]),
        run(&[
            "generate", "bart", "--ids", "5", "--beams", "4", "--return", "5",
        ]),
        run(&[
            "generate", "bart", "--ids", "5", "--beams", "4", "--stop", "x",
        ]),
        run(&["generate", "bart", "--ids", "5", "--length-penalty", "2"]),
        run(&[
            "generate",
            "bart",
            "--ids",
            "5",
            "--beams",
            "4",
            "--length-penalty",
            "nan",
        ]),
        run(&["generate", &encoder, "--ids", "5"]).replace(&encoder, "bert"),
    ];
    configure(&path.join("bart"), &json!({ "decoder_start_token_id": 73 }));
    transcripts.push(run(&["generate", "bart", "--ids", "5"]));
    for wrong in [
        json!({ "early_stopping": "soon" }),
        json!({ "early_stopping": false, "num_beams": 0 }),
    ] {
        configure(&path.join("bart"), &wrong);
        transcripts.push(run(&["translate", "bart", "a"]));
    }
    insta::assert_snapshot!(transcripts.join("\n\n"));
}
