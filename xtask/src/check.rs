//! `cargo xtask check`: what must hold before a commit.

use anyhow::Result;

use crate::{cargo, cargo_command};

pub fn run() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    let deny = ["--", "-D", "warnings"];
    cargo(&[&["clippy", "--workspace", "--all-targets"], &deny[..]].concat())?;
    for instructions in instruction_sets() {
        for threads in ["1", "2", "3"] {
            crate::run(&mut test_suite(instructions, threads))?;
        }
    }
    crate::run(
        cargo_command(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// Values of `ATTENTIVE_SIMD` for this CPU; none leaves it unset, for the widest.
fn instruction_sets() -> Vec<Option<&'static str>> {
    let mut sets = vec![None];
    sets.extend(has_avx512().then_some(Some("avx2")));
    sets.push(Some("scalar"));
    sets
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

/// All tests, doc examples and the check of the crates' dependencies.
fn test_suite(instructions: Option<&str>, threads: &str) -> std::process::Command {
    // Always the whole workspace: another selection of crates has other features and recompiles burn.
    let mut tests = cargo_command(&["test", "--release", "--workspace"]);
    tests.env_remove("ATTENTIVE_SIMD");
    if let Some(instructions) = instructions {
        tests.env("ATTENTIVE_SIMD", instructions);
    }
    tests.env("ATTENTIVE_THREADS", threads);
    tests
}
