//! Snapshots of what a user sees: help, errors, `info`.

use std::path::Path;

use crate::program::{TINY, attentive, succeed, transcript};

#[test]
fn help() {
    let folder = tempfile::tempdir().unwrap();
    let overview = transcript(folder.path(), &["--help"]);
    let commands: Vec<String> = (overview.lines())
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(commands.len() >= 12, "{commands:?}");
    let mut transcripts = vec![transcript(folder.path(), &[]), overview];
    for command in &commands {
        transcripts.push(transcript(folder.path(), &[command, "--help"]));
    }
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn recipes_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let list = transcript(folder.path(), &["recipes"]);
    let unknown = transcript(folder.path(), &["recipes", "storys"]);
    insta::assert_snapshot!([list, unknown].join("\n\n"));
    let printed = succeed(folder.path(), &["recipes", "stories"]);
    let shipped = include_str!("../../../../recipes/stories.toml");
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), shipped);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = succeed(folder.path(), &["completions", shell]);
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains("max-new-tokens"), "{shell}");
    }
}

#[test]
fn errors_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let write = |name: &str, contents: &[u8]| std::fs::write(path.join(name), contents).unwrap();
    write("tiny.toml", TINY.as_bytes());
    write("empty.txt", b"");
    write("latin1.txt", b"caf\xe9 au lait");
    write("short.txt", b"Too short to train on.");
    write("broken.toml", b"seed = = 3\n");
    write(
        "unknown.toml",
        TINY.replace("warmup_steps", "warmup").as_bytes(),
    );
    std::fs::create_dir(path.join("folder")).unwrap();
    let long_prompt = format!("sample.prompt=\"{}\"", "abc".repeat(11));
    write("latin1.toml", b"# caf\xe9");
    let train = |arguments: &[&str]| {
        let arguments = [&["train", "tiny.toml", "--out", "run"], arguments].concat();
        transcript(path, &arguments)
    };
    let transcripts = [
        train(&["--data", "missing.txt"]),
        train(&["--data", "empty.txt"]),
        train(&["--data", "folder"]),
        train(&["--data", "latin1.txt"]),
        train(&["--data", "short.txt"]),
        train(&["--set", "training.stepz=5"]),
        train(&["--set", "optimizr.learning_rate=5"]),
        train(&["--set", "model.blocks.0.attention.head=5"]),
        train(&["--set", "model.blocks.3.dropout=0.5"]),
        train(&["--set", "training.steps"]),
        train(&["--set", "training.steps=many"]),
        train(&["--set", "training.steps=0"]),
        train(&["--set", "optimizer.learning_rate=-1"]),
        train(&["--set", "model.blocks.0.dropout=1.5"]),
        train(&["--set", "model.blocks.0.attention.heads=3"]),
        train(&["--set", "model.vocabulary=100"]),
        train(&["--set", "tokenizer={kind=\"bpe\", vocabulary=10}"]),
        train(&["--set", "data.paths=[\"a.txt\"]"]),
        train(&["--set", "model.blocks.0.attention.heads=two"]),
        train(&["--set", "model.width=200000000"]),
        train(&["--set", &long_prompt]),
        train(&["--seed", "9223372036854775808"]),
        train(&["--device", "cuda"]),
        train(&["--device", "abacus"]),
        transcript(path, &["train", "tinny"]),
        transcript(path, &["train", "broken.toml"]),
        transcript(path, &["train", "latin1.toml"]),
        transcript(path, &["train", "shakespeare-char", "--out", "run"]),
        transcript(path, &["train", "unknown.toml"]),
        transcript(path, &["train", "--step-count", "5"]),
    ];
    assert!(
        !path.join("run").exists(),
        "a refused run leaves nothing behind"
    );
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn errors_of_a_folder_that_holds_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("tiny.toml"), TINY).unwrap();
    let run = [
        "train",
        "tiny.toml",
        "--out",
        "run",
        "--set",
        "training.steps=2",
    ];
    succeed(path, &run);
    let before = std::fs::read(path.join("run/model.safetensors")).unwrap();
    let train = |arguments: &[&str]| transcript(path, &[&run[..], arguments].concat());
    let transcripts = [
        train(&[]),
        train(&["--resume", "--set", "model.width=32"]),
        train(&["--resume", "--seed", "9"]),
        train(&["--resume", "--overwrite"]),
    ];
    insta::assert_snapshot!(transcripts.join("\n\n"));
    assert!(before == std::fs::read(path.join("run/model.safetensors")).unwrap());
    std::fs::write(path.join("run/notes.txt"), "mine").unwrap();
    succeed(path, &[&run[..], &["--overwrite", "--seed", "9"]].concat());
    assert!(before != std::fs::read(path.join("run/model.safetensors")).unwrap());
    assert_eq!(std::fs::read(path.join("run/notes.txt")).unwrap(), b"mine");
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name);
    path.canonicalize().unwrap().display().to_string()
}

#[test]
fn info() {
    let folder = tempfile::tempdir().unwrap();
    let transcripts: Vec<String> = ["gpt2", "llama", "llama-tied"]
        .iter()
        .flat_map(|name| {
            let model = fixture(name);
            [
                transcript(folder.path(), &["info", &model]).replace(&model, name),
                transcript(folder.path(), &["info", &model, "--json"]).replace(&model, name),
            ]
        })
        .collect();
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn errors_of_using_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = fixture("gpt2");
    let generate = |arguments: &[&str]| {
        let arguments = [&["generate", &model], arguments].concat();
        transcript(path, &arguments).replace(&model, "gpt2")
    };
    let long = ["5"; 49].join(",");
    let transcripts = [
        transcript(path, &["generate", "nowhere"]),
        transcript(path, &["info", "nowhere"]),
        generate(&["--prompt", "text"]),
        generate(&["--ids", "97"]),
        generate(&["--ids", &long]),
        generate(&["--ids", "1", "--temperature", "-1"]),
        generate(&["--ids", "1", "--stop", ""]),
        generate(&["--ids", "1", "--top-k", "0"]),
        generate(&["--ids", "1", "--top-p", "1.5"]),
        generate(&["--ids", "1", "--repetition-penalty", "0"]),
        generate(&["--ids", "1", "--stop", "x"]),
        generate(&["--ids", "one"]),
        transcript(
            path,
            &[
                "forward",
                &model,
                "--inputs",
                "no.safetensors",
                "--save",
                "out",
            ],
        )
        .replace(&model, "gpt2"),
    ];
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn invalid_environment_variables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [("ATTENTIVE_THREADS", "0"), ("ATTENTIVE_SIMD", "avx")] {
        let mut command = attentive(folder.path(), &["recipes"]);
        let output = command.env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.starts_with(&format!("error: {name} is \"{value}\"; ")),
            "{message}"
        );
    }
    let mut command = attentive(folder.path(), &["recipes"]);
    let output = command.env("ATTENTIVE_SIMD", "scalar").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}
