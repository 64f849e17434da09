//! Tasks of the workspace: `cargo xtask check` before a commit, `bench` before a claim of speed, `goldens` to remake the
//! fixtures.

mod bench;
mod compare;
mod performance;
mod scaling;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask TASK
  check     formatting, clippy, all tests, documentation, and that the crates' arrows are those of ARCHITECTURE.md
  bench     [WORK…] [--rounds N] [--json FILE]: us and PyTorch interleaved (same venv), with the machine's limits, and
            our kernels beside their naive twins; a run of everything is written to docs/performance.md
            `bench scaling` measures every attention against the length instead, into docs/attention.md
  compare   [NAME…]: trains one small recipe once per attention, positions, norm placement and feed-forward layer, and
            writes the held-out losses to docs/attention.md
  goldens   remake fixtures/ with PyTorch and transformers (makes reference/.venv from PyPI; needs python3)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task = arguments.first().map_or("", String::as_str);
    let done = match task {
        "bench" => bench::run(&arguments[1..]),
        "check" => check(),
        "compare" => compare::run(&arguments[1..]),
        "goldens" => goldens(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    let deny = ["--", "-D", "warnings"];
    cargo(&[&["clippy", "--workspace", "--all-targets"], &deny[..]].concat())?;
    // The arrows are a test of this package, so they are among these; so are the documentation's examples.
    cargo(&["test", "--workspace"])?;
    run(cargo_command(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn goldens() -> Result<()> {
    let (python, reference) = (python()?, root().join("reference"));
    run(Command::new(&python).arg(reference.join("goldens.py")))?;
    run(Command::new(&python).arg(reference.join("operations")))?;
    run(Command::new(&python).arg(reference.join("parts.py")))
}

/// Python with PyTorch and transformers, in an environment of the project's own.
fn python() -> Result<PathBuf> {
    let reference = root().join("reference");
    let environment = reference.join(".venv");
    let python = environment.join("bin").join("python");
    if !environment.join("ready").exists() {
        println!(
            "making {} with PyTorch and transformers from PyPI",
            environment.display()
        );
        run(Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment))?;
        let requirements = reference.join("requirements.txt");
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--requirement"])
            .arg(requirements))?;
        std::fs::write(environment.join("ready"), "")?;
    }
    Ok(python)
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run(&mut cargo_command(arguments))
}

fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Result<()> {
    println!("> {command:?}");
    let status = command
        .current_dir(root())
        .status()
        .with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask stands in the workspace")
        .to_owned()
}
