//! Commands on GGUF files, and chat: `fixtures/gguf`, made by `reference/gguf_models.py`.

use std::path::{Path, PathBuf};

use attentive::checkpoint::{TensorFile, write_tensors};
use attentive::tensor::TensorData;
use attentive_testing::{Scale, VALUES, assert_close};
use serde_json::{Value, json};

use crate::program::{attentive, succeed, transcript};

fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/gguf")
        .join(name);
    path.canonicalize().unwrap()
}

/// A folder with both files, so that transcripts show short paths.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["byte-pairs.gguf", "pieces.gguf"] {
        std::fs::copy(fixture(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn run_json(folder: &Path, arguments: &[&str]) -> Value {
    let output = succeed(folder, arguments);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn transcripts() {
    let folder = folder();
    let path = folder.path();
    let transcripts = [
        transcript(path, &["info", "byte-pairs.gguf"]),
        transcript(path, &["tokenize", "byte-pairs.gguf", "the cat 12"]),
        transcript(path, &["tokenize", "pieces.gguf", "the cat!é"]),
        transcript(path, &["tokenize", "pieces.gguf", "--ids", "1,9,12"]),
        transcript(
            path,
            &["generate", "pieces.gguf", "--chat", "--prompt", "the cat"],
        ),
        transcript(path, &["generate", "byte-pairs.gguf", "--chat"]),
        transcript(
            path,
            &[
                "generate",
                "byte-pairs.gguf",
                "--prompt",
                "a",
                "--system",
                "b",
            ],
        ),
        transcript(path, &["info", "missing.gguf"]),
        transcript(path, &["tokenize", "missing.gguf", "a"]),
    ];
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn a_chat_uses_the_template_of_the_file_and_prints_only_the_answer() {
    let folder = folder();
    let call = |more: &[&'static str]| {
        let plain = [
            "generate",
            "byte-pairs.gguf",
            "--chat",
            "--prompt",
            "the cat",
            "--temperature",
            "0",
            "--max-new-tokens",
            "8",
        ];
        [&plain, more].concat()
    };
    let output = run_json(folder.path(), &call(&["--json"]));
    assert_eq!(
        output["prompt"],
        "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
    );
    // No BOS token is added: the template already has one.
    assert_eq!(output["prompt_ids"][0], 1);
    assert_ne!(output["prompt_ids"][1], 1);
    let shown = succeed(folder.path(), &call(&[]));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(
        shown.trim_end_matches('\n'),
        output["text"].as_str().unwrap().trim_end_matches('\n')
    );
    let output = run_json(folder.path(), &call(&["--json", "--system", "sit"]));
    let prompt = output["prompt"].as_str().unwrap();
    assert!(
        prompt.starts_with("<|im_start|>system\nsit<|im_end|>\n"),
        "{prompt}"
    );
}

/// The chat template is in tokenizer_config.json, the message on standard input.
#[test]
fn a_chat_uses_the_template_of_a_folder() {
    use std::io::Write;
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("byte-pairs").join(file), path.join(file)).unwrap();
    }
    let vocabulary = r#"{"<|endoftext|>":0,"a":1,"b":2,"Ċ":3,":":4}"#;
    std::fs::write(path.join("vocab.json"), vocabulary).unwrap();
    std::fs::write(path.join("merges.txt"), "#version: 0.2\n").unwrap();
    let config = json!({
        "tokenizer_class": "GPT2Tokenizer",
        "chat_template": "{{ messages[0].content }}:{% if add_generation_prompt %}{{ '\n' }}b{% endif %}",
    });
    std::fs::write(path.join("tokenizer_config.json"), config.to_string()).unwrap();
    let arguments = ["generate", ".", "--chat", "--max-new-tokens", "1", "--json"];
    let mut child = attentive(path, &arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output["prompt"], "a:\nb");
    assert_eq!(output["prompt_ids"], json!([1, 4, 3, 2]));
}

#[test]
fn forward_matches_numpy() {
    let folder = folder();
    for name in ["byte-pairs", "pieces"] {
        let golden = TensorFile::open(&fixture(&format!("{name}.safetensors"))).unwrap();
        let ids = TensorData::new(golden.integers("input_ids").unwrap(), [1, 12]);
        let inputs = folder.path().join("in.safetensors");
        write_tensors(
            &inputs,
            [("input_ids".to_owned(), ids)].into(),
            Default::default(),
        )
        .unwrap();
        let model = format!("{name}.gguf");
        succeed(
            folder.path(),
            &[
                "forward",
                &model,
                "--inputs",
                "in.safetensors",
                "--save",
                "out.safetensors",
            ],
        );
        let ours = TensorFile::open(&folder.path().join("out.safetensors")).unwrap();
        let (ours, theirs) = (ours.floats("logits"), golden.floats("logits"));
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        assert_close(name, &ours, &theirs, Scale::Largest, VALUES);
    }
}
