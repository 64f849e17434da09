//! Runs the built program in a folder of its own; shared by these tests.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program, about to be run in `folder` with `arguments`.
pub fn attentive(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attentive"));
    command.args(arguments);
    isolate(&mut command, folder);
    command
}

/// Runs a command in `folder`, with a fixed number of threads, offline, and with a hub cache of its own.
pub fn isolate(command: &mut Command, folder: &Path) {
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("COLUMNS", "100")
        // Results are reproducible only with a fixed number of threads.
        .env("ATTENTIVE_THREADS", "2")
        .env("RAYON_NUM_THREADS", "2")
        // No test contacts the real hub, or sees the user's cached models.
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_HOME", folder.join("huggingface"));
    for name in ["HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT"] {
        command.env_remove(name);
    }
}

/// Lets a command reach a test hub.
pub fn connect(command: &mut Command, endpoint: &str) {
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
        .env("HF_HUB_OFFLINE", "0")
        .env("HF_ENDPOINT", endpoint);
}

/// The command line, its output and its exit code, as in a terminal.
pub fn transcript(folder: &Path, arguments: &[&str]) -> String {
    let output = attentive(folder, arguments).output().unwrap();
    let text = |bytes: &[u8]| {
        let folder = folder.display().to_string();
        String::from_utf8_lossy(bytes).replace(&folder, "FOLDER")
    };
    format!(
        "$ attentive {}\n{}{}[exit {}]",
        arguments.join(" "),
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap_or(-1)
    )
}

/// Runs the program and requires success.
pub fn succeed(folder: &Path, arguments: &[&str]) -> Output {
    let output = attentive(folder, arguments).output().unwrap();
    assert!(
        output.status.success(),
        "attentive {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A recipe that trains in a second: a tiny model with dropout, on few stories.
pub const TINY: &str = r#"# Tiny.
seed = 3
[data]
kind = "stories"
count = 60
[tokenizer]
kind = "bytes"
[optimizer]
learning_rate = 3e-3
[schedule]
warmup_steps = 4
[training]
steps = 24
batch_size = 2
gradient_accumulation_steps = 2
evaluate_every = 6
evaluation_windows = 4
[sample]
prompt = "Once"
tokens = 8
[model]
length = 32
width = 16
embedding_dropout = 0.1
positions = { kind = "learned" }
final_norm = { kind = "layer" }
[[model.blocks]]
repeat = 2
dropout = 0.1
norm = { kind = "layer" }
attention = { kind = "full", heads = 2, dropout = 0.1, bias = true, output_bias = true }
feed_forward = { kind = "plain", hidden_width = 32 }
"#;
