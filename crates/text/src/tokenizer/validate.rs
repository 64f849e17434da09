//! Validates what would make the `tokenizers` crate panic on a tokenizer.json.

use serde_json::Value;

use crate::base64::decode_base64;
use crate::sentence_piece::check_charsmap;

/// An error if the file is not JSON, or has a damaged charsmap.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    check_normalizer(&file["normalizer"])
}

/// Checks a normalizer and nested ones.
fn check_normalizer(value: &Value) -> Result<(), String> {
    const KEY: &str = "precompiled_charsmap";
    if value["type"] == "Precompiled" || value.get(KEY).is_some() {
        let charsmap = value[KEY].as_str().and_then(decode_base64);
        let charsmap = charsmap.filter(|charsmap| !charsmap.is_empty());
        let charsmap = charsmap.ok_or_else(|| format!("its {KEY} is not base64"))?;
        check_charsmap(&charsmap)?;
    }
    match value {
        Value::Array(values) => values.iter().try_for_each(check_normalizer),
        Value::Object(members) => members.values().try_for_each(check_normalizer),
        _ => Ok(()),
    }
}
