//! Notes on standard error, and shell quoting.

use std::fmt::Display;
use std::io::Write;

/// Prints a line to standard error; write errors are ignored.
pub fn note(text: impl Display) {
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
