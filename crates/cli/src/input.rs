//! What the program reads besides files of the library: standard input and recipes.

use crate::failure::Usage;

/// Bytes as text; the error says where they are none.
pub fn utf8(place: &str, bytes: Vec<u8>) -> Result<String, Usage> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Usage(format!(
            "{place} is not UTF-8 text (the first wrong byte is at offset {offset}); convert it to UTF-8"
        ))
    })
}
