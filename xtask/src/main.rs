//! Workspace tasks: `cargo xtask check` before a commit, `bench` before a claim of speed, `goldens` to regenerate the fixtures.

mod bench;
mod check;
mod compare;
mod performance;
mod scaling;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask TASK
  check     formatting, clippy, all tests on each instruction set with 1, 2 and 3 threads, rustdoc, and the crate
            dependencies of ARCHITECTURE.md
  bench     [NAME…] [--rounds N] [--json FILE]: this library and PyTorch interleaved (same venv), with the machine's peak
            throughput, and kernels against their naive versions; a complete run is written to docs/performance.md
            `bench scaling` measures every attention against the length instead, for docs/attention.md
  compare   [NAME…]: trains one small recipe with each attention, positions, norm placement and feed-forward layer, and
            writes the held-out losses to docs/attention.md
  goldens   regenerate fixtures/ with PyTorch and transformers (creates reference/.venv from PyPI; needs python3)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task = arguments.first().map_or("", String::as_str);
    let done = match task {
        "bench" => bench::run(&arguments[1..]),
        "check" => check::run(),
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

fn goldens() -> Result<()> {
    let (python, reference) = (python()?, root().join("reference"));
    run(Command::new(&python).arg(reference.join("goldens.py")))?;
    run(Command::new(&python).arg(reference.join("operations")))?;
    run(Command::new(&python).arg(reference.join("parts.py")))
}

/// Python with PyTorch and transformers, in a virtual environment.
fn python() -> Result<PathBuf> {
    let reference = root().join("reference");
    let environment = reference.join(".venv");
    let python = environment.join("bin").join("python");
    if !environment.join("ready").exists() {
        println!(
            "creating {} with PyTorch and transformers from PyPI",
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

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the workspace")
        .to_owned()
}
