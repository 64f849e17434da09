//! Splits long text where it does not change the encoding, so that big files encode in parallel and in bounded memory.

/// The minimum size of all chunks but the last. Large enough that the overhead per chunk vanishes, small enough that the
/// alignment tables of the `tokenizers` crate (about a hundred bytes per byte of text) stay small.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

/// Splits `text` into chunks of at least `min_bytes`, each split right before a newline that follows a non-whitespace
/// character.
///
/// No match of the GPT-2 pattern spans such a split: every alternative either is all whitespace, and so starts at the newline
/// at the earliest, or ends with non-whitespace, and so ends before it. The lookahead `\s+(?!\S)` only looks past whitespace,
/// which never precedes a split.
pub(crate) fn chunks(text: &str, min_bytes: usize) -> Vec<&str> {
    let mut chunks = Vec::with_capacity(text.len() / min_bytes.max(1) + 1);
    let mut rest = text;
    while let Some(split) = first_split(rest, min_bytes.max(1)) {
        let (chunk, after) = rest.split_at(split);
        chunks.push(chunk);
        rest = after;
    }
    if !rest.is_empty() {
        chunks.push(rest);
    }
    chunks
}

fn first_split(text: &str, min_bytes: usize) -> Option<usize> {
    // A newline byte never occurs inside another UTF-8 character, so searching bytes is safe.
    let after = text.as_bytes().get(min_bytes..)?;
    after
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(index, _)| index + min_bytes)
        .find(|&split| {
            let before = text[..split].chars().next_back();
            // Older Unicode versions, and so some regex engines, count U+180E as whitespace.
            before.is_some_and(|character| !character.is_whitespace() && character != '\u{180E}')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, min_bytes: usize, expected: &[&str]) {
        assert_eq!(chunks(text, min_bytes), expected);
        assert_eq!(chunks(text, min_bytes).concat(), text);
    }

    #[test]
    fn splits_fall_before_newlines_that_follow_text() {
        check("one\ntwo\nthree", 1, &["one", "\ntwo", "\nthree"]);
        check("one\ntwo\nthree", 4, &["one\ntwo", "\nthree"]);
        check("one \n\n two", 1, &["one \n\n two"]);
        check("\n\none\n\n", 1, &["\n\none", "\n\n"]);
        check("", 1, &[]);
        check("é\né", 1, &["é", "\né"]);
    }
}
