//! Every parser of the workspace as a fuzz target, which must not panic, abort, or exceed its memory limit.
//!
//! Two programs call the targets: the fuzzers of `targets/`, and `tests/corpus.rs`, which runs past crashes and mutated seeds in
//! every test run.
//!
//! ```text
//! seeds (valid files) ─┐                      ┌─ targets/NAME.rs   cargo fuzz, unbounded
//! corpus/NAME/* ───────┼────── mutations ─────┤
//! (past crashes)       │                      └─ tests/corpus.rs   bounded, in every test run
//! ```

mod files;
mod hub;
mod images;
mod mutate;
mod seeds;
mod tensors;
mod texts;

#[cfg(feature = "models")]
mod model_seeds;
#[cfg(feature = "models")]
mod models;

use std::path::Path;

pub use files::Files;
pub use mutate::{Form, mutated};

/// A fuzz target: a parser.
pub struct Target {
    /// Its name, also of its fuzzer and its folder in `corpus/`.
    pub name: &'static str,
    /// Parses bytes and uses the result.
    pub run: fn(&[u8]),
    /// The structure of its inputs, so that mutations preserve it.
    pub form: Form,
    /// Valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The memory limit in bytes for an input of a few kilobytes.
    pub memory: usize,
}

/// The default memory limit.
const DEFAULT_MEMORY: usize = 16 << 20;

/// All targets of this build.
pub fn targets() -> Vec<Target> {
    let light = [
        tensors::TARGETS.as_slice(),
        &texts::TARGETS,
        &images::TARGETS,
        &hub::TARGETS,
    ];
    let all = light.into_iter().flatten();
    #[cfg(feature = "models")]
    let all = all.chain(&models::TARGETS);
    all.map(|target| Target { ..*target }).collect()
}

/// The target of a name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    let mut all = targets().into_iter();
    all.find(|target| target.name == name)
        .unwrap_or_else(|| panic!("there is no target {name}"))
}

/// Unwraps a result, and checks that an error is one line of bounded length without unescaped input.
fn checked<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let text = error.to_string();
            assert!(
                !text.contains(['\n', '\r', '\0', '\u{1b}']),
                "one line: {text:?}"
            );
            assert!(text.len() < MAX_MESSAGE_BYTES, "one sentence: {text:?}");
            None
        }
    }
}

/// Longer than any list of supported values, and shorter than what a file may inject.
const MAX_MESSAGE_BYTES: usize = 4000;

/// Calls `run` with a temporary file.
fn with_file(name: &str, bytes: &[u8], run: impl FnOnce(&Path)) {
    Files::of([(name, bytes)]).with_folder(|folder| run(&folder.join(name)));
}
