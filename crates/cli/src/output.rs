//! Notes on standard error, and shell quoting.

use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

/// How much is printed to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors.
    Quiet,
    /// Errors, notes and progress.
    #[default]
    Normal,
    /// Also times.
    Verbose,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// Sets the verbosity of the program; the first call counts.
pub fn set_verbosity(verbosity: Verbosity) {
    let _ = VERBOSITY.set(verbosity);
}

/// The verbosity of the program.
pub fn verbosity() -> Verbosity {
    VERBOSITY.get().copied().unwrap_or_default()
}

/// Prints a line to standard error, unless the program is quiet.
pub fn note(text: impl Display) {
    if verbosity() > Verbosity::Quiet {
        error_line(text);
    }
}

/// Prints a line to standard error if the program is verbose.
pub fn verbose(text: impl Display) {
    if verbosity() == Verbosity::Verbose {
        error_line(text);
    }
}

/// Prints a line to standard error, always; write errors are ignored.
pub fn error_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A word quoted for a shell, if needed.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, expected) in [
            ("runs/a-1.b", "runs/a-1.b"),
            ("Once upon", "'Once upon'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
