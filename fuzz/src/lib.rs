//! Every parser of the workspace as a function of bytes that must neither panic, nor abort, nor take more memory than it may.
//!
//! Two programs call these functions: the fuzzers of `targets/`, which look for bytes that break them, and `tests/corpus.rs`,
//! which runs the bytes that once did, and good files with changes, in every test run.
//!
//! ```text
//! seeds (good files) ──┐                      ┌─ targets/NAME.rs   cargo fuzz, as long as one likes
//! corpus/NAME/* ───────┼─ changes (mutate) ───┤
//! (what broke once)    │                      └─ tests/corpus.rs   a bounded number, each time
//! ```

mod files;
mod hub;
mod mutate;
mod pictures;
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

/// A parser.
pub struct Target {
    /// Its name: that of its fuzzer, and of its folder in `corpus/`.
    pub name: &'static str,
    /// Parses bytes and uses what comes of it.
    pub run: fn(&[u8]),
    /// How its inputs are made, so that changes leave them worth reading.
    pub form: Form,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The most bytes of memory that an input of a few kilobytes may take.
    pub memory: usize,
}

/// What a file may take beside its own size where nothing is said.
const LITTLE: usize = 16 << 20;

/// All parsers that are built in.
pub fn targets() -> Vec<Target> {
    let light = [
        tensors::TARGETS.as_slice(),
        &texts::TARGETS,
        &pictures::TARGETS,
        &hub::TARGETS,
    ];
    let all = light.into_iter().flatten();
    #[cfg(feature = "models")]
    let all = all.chain(&models::TARGETS);
    all.map(|target| Target { ..*target }).collect()
}

/// The parser of a name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    let mut all = targets().into_iter();
    all.find(|target| target.name == name)
        .unwrap_or_else(|| panic!("there is no target {name}"))
}

/// Takes what a parser gave. An error must be one sentence: what a file says has no place in it unescaped.
fn told<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let text = error.to_string();
            assert!(
                !text.contains(['\n', '\r', '\0', '\u{1b}']),
                "one line: {text:?}"
            );
            assert!(text.len() < LONGEST_MESSAGE, "one sentence: {text:?}");
            None
        }
    }
}

/// Longer than the lists of all that is supported, and shorter than what a file might hold.
const LONGEST_MESSAGE: usize = 4000;

/// A file of bytes, while it is used.
fn with_file(name: &str, bytes: &[u8], run: impl FnOnce(&Path)) {
    Files::of([(name, bytes)]).with_folder(|folder| run(&folder.join(name)));
}
