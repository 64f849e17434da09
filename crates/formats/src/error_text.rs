//! Text for error messages: excerpts of files on one line and of bounded length, and serde messages without Rust type names.

/// An excerpt of a file for a message: escaped, on one line, truncated to 160 characters.
pub fn excerpt(text: &str) -> String {
    const MAX_CHARACTERS: usize = 160;
    let mut characters = text.escape_debug();
    let mut excerpt: String = characters.by_ref().take(MAX_CHARACTERS).collect();
    if characters.next().is_some() {
        excerpt.push('…');
    }
    excerpt
}

/// A serde message without Rust type names.
pub fn plain_serde_error(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return match message.strip_prefix("missing field ") {
            Some(key) => format!("the key {key} is missing"),
            None => message.to_owned(),
        };
    };
    if let Some(value) = found.strip_prefix("unknown variant ") {
        let known = expected.trim_start_matches("one of ");
        return format!("there is no {value}; use {known}");
    }
    let expected = match expected {
        "usize" | "u64" | "u32" if found.contains("integer") => "0 or more",
        "usize" | "u64" | "u32" => "a whole number",
        "f64" | "f32" => "a number",
        "bool" => "a boolean",
        table if table.starts_with("struct ") || table.contains("tagged enum ") => "a table",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// Text of a file on one line: control characters escaped, truncated to 2000 characters.
pub fn one_line(text: &str) -> String {
    const MAX_CHARACTERS: usize = 2000;
    let mut line = String::new();
    for character in text.chars().take(MAX_CHARACTERS) {
        match character.is_control() {
            true => line.extend(character.escape_debug()),
            false => line.push(character),
        }
    }
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        line.push('…');
    }
    line
}
