//! What a tokenizer.json may hold that the `tokenizers` crate would answer with a panic, looked for before it reads the file.

use serde_json::Value;

use crate::base64::bytes_of_base64;
use crate::sentence_piece::check_charsmap;

/// An error if the file is not JSON, or holds rules of characters that cannot be followed.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    check_normalizer(&file["normalizer"])
}

/// A normalizer and those that it holds.
fn check_normalizer(value: &Value) -> Result<(), String> {
    const RULES: &str = "precompiled_charsmap";
    if value["type"] == "Precompiled" || value.get(RULES).is_some() {
        let rules = value[RULES].as_str().and_then(bytes_of_base64);
        let rules = rules.filter(|rules| !rules.is_empty());
        let rules = rules.ok_or_else(|| format!("its character rules ({RULES}) are no base64"))?;
        check_charsmap(&rules)?;
    }
    match value {
        Value::Array(values) => values.iter().try_for_each(check_normalizer),
        Value::Object(members) => members.values().try_for_each(check_normalizer),
        _ => Ok(()),
    }
}
