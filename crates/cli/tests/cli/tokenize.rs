//! `attentive tokenize` matches Hugging Face, on folders with legacy vocabulary files or a tokenizer.json.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::program::{attentive, succeed, transcript};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../text/tests/folders")
        .join(name)
}

fn expected(name: &str) -> Value {
    let text = std::fs::read_to_string(folder(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn texts_and_pairs_have_the_ids_of_hugging_face() {
    for name in ["bert_uncased", "gpt2", "roberta", "t5", "llama", "marian"] {
        let path = folder(name);
        let path = path.to_str().unwrap();
        let pair = &expected(name)["pairs"][0];
        let [first, second] = ["first", "second"].map(|key| pair[key].as_str().unwrap());
        let arguments = ["tokenize", path, first, "--pair", second, "--json"];
        let output = succeed(Path::new("."), &arguments);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["ids"], pair["ids"], "{name}");
        assert_eq!(json["type_ids"], pair["type_ids"], "{name}");
    }
}

#[test]
fn lines_of_standard_input_are_texts_and_ids_become_text() {
    let path = folder("gpt2");
    let path = path.to_str().unwrap();
    let mut program = attentive(Path::new("."), &["tokenize", path, "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    input.write_all(b"the dog\na small robot\n").unwrap();
    drop(input);
    let output = program.wait_with_output().unwrap();
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let texts: Vec<&str> = lines
        .iter()
        .map(|it| it["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["the dog", "a small robot"]);
    for line in &lines {
        let ids: Vec<String> = line["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect();
        let output = succeed(Path::new("."), &["tokenize", path, "--ids", &ids.join(",")]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.trim_end_matches('\n'), line["text"].as_str().unwrap());
    }
}

#[test]
fn transcripts() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path();
    std::fs::create_dir(path.join("empty")).unwrap();
    std::fs::create_dir(path.join("model")).unwrap();
    for file in ["vocab.json", "merges.txt", "tokenizer_config.json"] {
        std::fs::copy(folder("gpt2").join(file), path.join("model").join(file)).unwrap();
    }
    let transcripts = [
        transcript(path, &["tokenize", "model", "the dog"]),
        transcript(path, &["tokenize", "model", "--ids", "999999"]),
        transcript(path, &["tokenize", "empty", "the dog"]),
        transcript(path, &["tokenize", "missing", "the dog"]),
    ];
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn lower_casing_is_asked_for_where_the_files_do_not_say_it() {
    let silent = tempfile::tempdir().unwrap();
    let from = folder("bert_cased");
    let config = std::fs::read_to_string(from.join("tokenizer_config.json")).unwrap();
    let without = config.replacen("\"do_lower_case\": false,", "", 1);
    std::fs::write(silent.path().join("tokenizer_config.json"), without).unwrap();
    for name in ["vocab.txt", "config.json"] {
        std::fs::copy(from.join(name), silent.path().join(name)).unwrap();
    }
    let said = |arguments: &[&str]| {
        let arguments = [&["tokenize", ".", "The dog"], arguments].concat();
        transcript(silent.path(), &arguments)
    };
    insta::assert_snapshot!(said(&[]), @r"
    $ attentive tokenize . The dog
    error: the tokenizer of . is ambiguous (vocab.txt has words with capital letters, and tokenizer_config.json does not set `do_lower_case`); add its tokenizer.json or complete its tokenizer_config.json, or give --lower-case
    [exit 1]
    ");
    let [cased, lower] = ["false", "true"].map(|value| said(&["--lower-case", value]));
    assert!(
        cased.contains("The") && cased.ends_with("[exit 0]"),
        "{cased}"
    );
    assert!(
        lower.contains("the") && lower.ends_with("[exit 0]"),
        "{lower}"
    );
    let refused = ["tokenize", ".", "The dog", "--lower-case", "true"];
    insta::assert_snapshot!(transcript(&folder("gpt2"), &refused), @r"
    $ attentive tokenize . The dog --lower-case true
    error: --lower-case: . does not need to be told whether text is lower-cased (only the vocabularies of BERT and ALBERT have it); leave --lower-case out
    [exit 2]
    ");
}
