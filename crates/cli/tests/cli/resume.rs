//! Interrupted training: however a run ends, a resumed run is bitwise identical to an uninterrupted one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::{TINY, attentive, succeed, transcript};

/// Every file of a run, by its path within it.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        for entry in std::fs::read_dir(here).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

fn assert_same_run(one: &Path, other: &Path) {
    let (one, other) = (contents(one), contents(other));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&one), names(&other));
    for (name, bytes) in &one {
        assert!(bytes == &other[name], "{name} differs");
    }
}

#[test]
fn a_run_killed_at_any_moment_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let started = Instant::now();
    succeed(folder.path(), &["train", "tiny.toml", "--out", "whole"]);
    let duration = started.elapsed();
    // Moments spread over a whole run: before the first save, between saves, while saving.
    let mut kills = 0;
    for tenth in [1, 3, 5, 7, 9] {
        let arguments = ["train", "tiny.toml", "--out", "killed", "--resume"];
        let mut child = attentive(folder.path(), &arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(duration * tenth / 10);
        // On Unix this is SIGKILL.
        child.kill().unwrap();
        if !child.wait().unwrap().success() {
            kills += 1;
        }
    }
    assert!(kills >= 2, "the run ended before it could be killed");
    succeed(
        folder.path(),
        &["train", "tiny.toml", "--out", "killed", "--resume"],
    );
    assert_same_run(&folder.path().join("whole"), &folder.path().join("killed"));
}

/// Starts a long run, and sends it each signal once the one before has taken effect; its exit code and standard error.
#[cfg(unix)]
fn signalled(folder: &Path, signals: &[&str]) -> (Option<i32>, String) {
    let long = ["--out", "run", "--set", "training.steps=100000"];
    // Evaluations that take long, so that the second signal arrives within one.
    let slow = [
        "--set",
        "training.evaluate_every=1",
        "--set",
        "training.evaluation_windows=20000",
    ];
    let arguments = match signals.len() {
        1 => [&["train", "tiny.toml"], &long[..]].concat(),
        _ => [&["train", "tiny.toml"], &long[..], &slow[..]].concat(),
    };
    let mut child = attentive(folder, &arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    let mut wait_for = |part: &str| {
        while !text.contains(part) {
            assert!(
                lines.read_line(&mut text).unwrap() > 0,
                "no {part:?} in {text}"
            );
        }
    };
    wait_for("parameters");
    let state = folder.join("run/checkpoints/last.safetensors");
    let started = Instant::now();
    while !state.exists() {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "nothing was saved"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    for signal in signals {
        let sent = std::process::Command::new("kill")
            .args([signal, child.id().to_string().as_str()])
            .status();
        assert!(sent.unwrap().success());
        wait_for("finishing this step");
    }
    lines.read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

#[cfg(unix)]
#[test]
fn the_sigterm_of_a_scheduler_saves_and_a_second_signal_says_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let (code, text) = signalled(folder.path(), &["-TERM"]);
    assert_eq!(code, Some(143), "{text}");
    succeed(
        folder.path(),
        &["train", "--resume", "--out", "run", "--dry-run"],
    );
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    let (code, text) = signalled(folder.path(), &["-INT", "-INT"]);
    assert_eq!(code, Some(130), "{text}");
    assert!(text.contains("stopped; run keeps step 0"), "{text}");
}

#[test]
fn a_resume_that_starts_over_says_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let resume = [
        "train",
        "tiny.toml",
        "--out",
        "run",
        "--resume",
        "--steps",
        "1",
    ];
    let text = transcript(folder.path(), &resume);
    assert!(
        text.contains("run holds no run: a new one starts"),
        "{text}"
    );
    std::fs::remove_file(folder.path().join("run/checkpoints/last.safetensors")).unwrap();
    let text = transcript(folder.path(), &resume);
    assert!(
        text.contains("run holds no checkpoint yet: its run starts at step 0"),
        "{text}"
    );
    let text = transcript(folder.path(), &resume);
    assert!(!text.contains("run holds"), "{text}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_says_how_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let arguments = [
        "train",
        "tiny.toml",
        "--out",
        "run",
        "--json",
        "--set",
        "training.steps=100000",
    ];
    let child = attentive(folder.path(), &arguments)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let state = folder.path().join("run/checkpoints/last.safetensors");
    let started = Instant::now();
    while !state.exists() {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "nothing was ever saved"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "interrupted");
    assert_eq!(last["resume"], "attentive train --resume --out run");
    let step = last["step"].as_u64().unwrap();

    let goal = format!("training.steps={}", step + 3);
    let resumed = succeed(
        folder.path(),
        &[
            "train", "--resume", "--out", "run", "--json", "--set", &goal,
        ],
    );
    let text = String::from_utf8(resumed.stdout).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["step"], step);
    let steps = text
        .lines()
        .filter(|line| line.contains("\"event\":\"step\""))
        .count();
    assert_eq!(steps, 3);
}

#[test]
fn another_seed_gives_another_model() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let train = |out: &str, seed: &str| {
        let steps = "training.steps=2";
        succeed(
            folder.path(),
            &[
                "train",
                "tiny.toml",
                "--out",
                out,
                "--seed",
                seed,
                "--set",
                steps,
            ],
        );
        std::fs::read(folder.path().join(out).join("model.safetensors")).unwrap()
    };
    let first = train("a", "1");
    assert!(first == train("b", "1"));
    assert!(first != train("c", "2"));
}
