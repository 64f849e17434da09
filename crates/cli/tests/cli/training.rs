//! Training that goes wrong or is disturbed: nothing that was saved is lost, and the user sees what happened.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::program::{TINY, attentive, succeed, transcript};

const RUN: [&str; 4] = ["train", "tiny.toml", "--out", "run"];

/// A folder with the tiny recipe, for 6 steps instead of 24.
fn tiny() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let recipe = TINY.replace("steps = 24", "steps = 6");
    std::fs::write(folder.path().join("tiny.toml"), recipe).unwrap();
    folder
}

fn train(folder: &Path, arguments: &[&str]) -> String {
    transcript(folder, &[&RUN[..], arguments].concat())
}

fn wait_for(path: &Path) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "no {path:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_run_that_diverges_saves_nothing_of_it() {
    let folder = tiny();
    let path = folder.path();
    let diverging = ["--set", "optimizer.learning_rate=1e30"];
    let evaluated = ["--set", "training.evaluate_every=1"];
    let first = train(path, &[&diverging[..], &evaluated].concat());
    let state = || std::fs::read(path.join("run/checkpoints/last.safetensors")).unwrap();
    // What is saved is the model before the first step, which the advised lower rate trains.
    succeed(path, &[&RUN[..], &["--resume"]].concat());
    let before = state();
    succeed(path, &[&RUN[..], &["--overwrite"]].concat());
    assert!(before == state());
    let more = ["--resume", "--set", "training.steps=12"];
    let second = train(path, &[&more[..], &diverging].concat());
    assert!(before == state());
    let metrics = std::fs::read_to_string(path.join("run/metrics.jsonl")).unwrap();
    assert!(!metrics.contains("null"), "{metrics}");
    succeed(path, &[&RUN[..], &more].concat());
    insta::assert_snapshot!(without_progress(&[first, second]));
}

/// The transcripts without the lines that hold timings.
fn without_progress(transcripts: &[String]) -> String {
    let transcripts = transcripts.join("\n\n");
    let kept = transcripts
        .lines()
        .filter(|line| !line.contains("tokens/s"));
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn folders_that_cannot_hold_the_run_are_refused() {
    let folder = tiny();
    let path = folder.path();
    std::fs::create_dir(path.join("run")).unwrap();
    std::fs::write(path.join("run/config.json"), "mine").unwrap();
    let mut transcripts = vec![
        train(path, &[]),
        train(path, &["--resume"]),
        train(path, &["--overwrite"]),
        transcript(path, &["train", "tiny.toml", "--out", "tiny.toml/run"]),
        transcript(path, &["train", "--resume", "--out", "none"]),
    ];
    assert_eq!(
        std::fs::read(path.join("run/config.json")).unwrap(),
        b"mine"
    );
    // What a run leaves behind if it is killed before the recipe is written.
    std::fs::remove_file(path.join("run/config.json")).unwrap();
    std::fs::create_dir(path.join("run/checkpoints")).unwrap();
    succeed(path, &RUN);
    transcripts.push(train(path, &["--resume", "--set", "training.steps=5"]));
    let state = path.join("run/checkpoints/last.safetensors");
    let bytes = std::fs::read(&state).unwrap();
    std::fs::write(&state, &bytes[..bytes.len() / 2]).unwrap();
    transcripts.push(train(path, &["--resume"]));
    std::fs::write(&state, bytes).unwrap();
    succeed(path, &[&RUN[..], &["--resume"]].concat());
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn resuming_needs_the_same_text_but_not_the_same_path() {
    let folder = tiny();
    let path = folder.path();
    let text = "Once there was a cat that sat on a mat. ".repeat(40);
    std::fs::write(path.join("a.txt"), &text).unwrap();
    let run = ["train", "tiny.toml", "--out", "run"];
    let characters = ["--set", "tokenizer={kind=\"characters\"}"];
    let line_break = ["--set", "sample.prompt=\"\\n\""];
    let data = ["--data", "a.txt"];
    let first = succeed(path, &[&run[..], &data, &characters, &line_break].concat());
    let first = String::from_utf8(first.stdout).unwrap();
    assert!(first.contains("has no tokens for sample.prompt"), "{first}");
    let resume = [&run[..], &characters, &["--resume"]].concat();
    // The recipe names no files, so the run keeps its own.
    succeed(path, &resume);
    std::fs::rename(path.join("a.txt"), path.join("b.txt")).unwrap();
    let moved = [&resume[..], &["--data", "b.txt"]].concat();
    succeed(path, &moved);
    std::fs::write(path.join("b.txt"), text + "é").unwrap();
    let changed = transcript(path, &moved);
    assert!(
        changed.contains("the data is not what run was started with"),
        "{changed}"
    );
    assert!(changed.ends_with("[exit 1]"), "{changed}");
}

#[test]
fn one_run_per_folder_and_a_closed_pipe_saves() {
    let folder = tiny();
    let path = folder.path();
    let long = ["--json", "--set", "training.steps=100000"];
    let mut child = attentive(path, &[&RUN[..], &long].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    // Keeps reading, so that the pipe does not fill up and block the run.
    let mut line = String::new();
    while !line.contains("\"event\":\"saved\",\"step\":6") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the run ended");
    }
    let second = train(path, &["--resume"]);
    assert!(
        second.contains("another process is training in run"),
        "{second}"
    );
    drop(lines);
    assert!(child.wait().unwrap().success());
    let metrics = std::fs::read_to_string(path.join("run/metrics.jsonl")).unwrap();
    assert!(metrics.lines().count() > 6, "{metrics}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_without_a_panic() {
    let folder = tiny();
    let full = || std::fs::File::create("/dev/full").unwrap();
    for arguments in [&["recipes"][..], &[], &["train", "tiny.toml", "--json"]] {
        let output = attentive(folder.path(), arguments)
            .stdout(full())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.starts_with("error: No space left"), "{text}");
        let both_full = attentive(folder.path(), arguments)
            .stdout(full())
            .stderr(full())
            .status();
        assert!([Some(1), Some(2)].contains(&both_full.unwrap().code()));
    }
    wait_for(&folder.path().join("runs/tiny/checkpoints/last.safetensors"));
}

#[test]
fn plain_lines_show_progress_and_generation_ends_at_a_stop_string() {
    let folder = tiny();
    let path = folder.path();
    let run = succeed(path, &RUN);
    let progress = String::from_utf8(run.stderr).unwrap();
    assert!(progress.contains("parameters, "), "{progress}");
    assert!(progress.contains("step 6/6  held-out loss "), "{progress}");
    let stdout = String::from_utf8(run.stdout).unwrap();
    assert!(
        stdout.ends_with("  attentive generate run Once\n"),
        "{stdout}"
    );

    let generate = |arguments: &[&str]| {
        let fixed = [
            "generate",
            "run",
            "--temperature",
            "0",
            "--max-new-tokens",
            "20",
            "--json",
        ];
        let output = succeed(path, &[&fixed[..], arguments].concat());
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let whole = generate(&["--prompt", "Once"]);
    assert_eq!(whole["prompt_ids"], serde_json::json!([79, 110, 99, 101]));
    let text = whole["text"].as_str().unwrap();
    let stop: String = text.chars().skip(3).take(2).collect();
    let stopped = generate(&["--prompt", "Once", "--stop", &stop]);
    assert_eq!(stopped["stop_reason"], "stop");
    let until = text.find(&stop).unwrap();
    assert_eq!(stopped["text"].as_str().unwrap(), &text[..until]);

    let mut child = attentive(
        path,
        &[
            "generate",
            "run",
            "--prompt=-x",
            "--max-new-tokens",
            "1000000",
        ],
    )
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    assert!(
        child.wait().unwrap().success(),
        "a closed pipe ends the generation"
    );
}
