//! Standard input and text files.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::failure::Usage;

/// All of standard input; none if it is a terminal.
pub fn standard_input() -> Result<Option<String>> {
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .context("standard input")?;
    Ok(Some(utf8("standard input", bytes)?))
}

/// The lines of standard input.
pub fn lines_of_standard_input() -> Result<Vec<String>> {
    let text = standard_input()?.ok_or_else(|| {
        Usage("there is no text; give one, or pipe lines into standard input".to_owned())
    })?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The lines of a file.
pub fn lines_of_file(path: &Path) -> Result<Vec<String>> {
    let source = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|error| anyhow!("{source} cannot be read ({error}); check the path"))?;
    let text = utf8(&source, bytes)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Bytes as UTF-8; the error has the offset of the first invalid byte.
pub fn utf8(source: &str, bytes: Vec<u8>) -> Result<String, Usage> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Usage(format!(
            "{source} is not UTF-8 text (the first invalid byte is at offset {offset}); convert it to UTF-8"
        ))
    })
}
