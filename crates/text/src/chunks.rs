//! Cuts long text where a tokenizer cannot tell the difference, so that big files encode in parallel and in
//! bounded memory.

/// Chunks are at least this long (the last may be shorter). Large enough that the cost per chunk vanishes, small
/// enough that the alignment tables of the `tokenizers` crate (about a hundred bytes per byte of text) stay small.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

/// Cuts `text` into chunks of at least `least` bytes, each cut standing right before a newline that follows a
/// character which is not whitespace.
///
/// There the pattern of GPT-2 never matches across: every alternative either consists of whitespace only, and so
/// would have to begin at the newline, or ends with a character that is not whitespace, and so ends before it.
/// The lookahead `\s+(?!\S)` looks only past whitespace, which the cut does not follow.
pub(crate) fn chunks(text: &str, least: usize) -> Vec<&str> {
    let mut chunks = Vec::with_capacity(text.len() / least.max(1) + 1);
    let mut rest = text;
    while let Some(cut) = first_cut(rest, least.max(1)) {
        let (chunk, after) = rest.split_at(cut);
        chunks.push(chunk);
        rest = after;
    }
    if !rest.is_empty() {
        chunks.push(rest);
    }
    chunks
}

fn first_cut(text: &str, least: usize) -> Option<usize> {
    // A newline is one byte that occurs inside no other character, so searching bytes is safe.
    let after = text.as_bytes().get(least..)?;
    after
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(index, _)| index + least)
        .find(|&cut| {
            let before = text[..cut].chars().next_back();
            // Older Unicode versions, and so some regex engines, count U+180E as whitespace.
            before.is_some_and(|character| !character.is_whitespace() && character != '\u{180E}')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, least: usize, expected: &[&str]) {
        assert_eq!(chunks(text, least), expected);
        assert_eq!(chunks(text, least).concat(), text);
    }

    #[test]
    fn cuts_stand_before_newlines_after_text() {
        check("one\ntwo\nthree", 1, &["one", "\ntwo", "\nthree"]);
        check("one\ntwo\nthree", 4, &["one\ntwo", "\nthree"]);
        check("one \n\n two", 1, &["one \n\n two"]);
        check("\n\none\n\n", 1, &["\n\none", "\n\n"]);
        check("", 1, &[]);
        check("é\né", 1, &["é", "\né"]);
    }
}
