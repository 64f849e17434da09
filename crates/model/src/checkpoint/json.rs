//! Reading and writing the JSON files of a model folder.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{CheckpointError, SpecialTokens};

/// Reads a JSON object.
pub fn read(path: &Path) -> Result<Value, CheckpointError> {
    let text = std::fs::read_to_string(path).map_err(|source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })?;
    let broken = |problem: String| CheckpointError::Broken {
        path: path.to_owned(),
        problem,
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if !value.is_object() {
        return Err(broken("it is not a JSON object".to_owned()));
    }
    Ok(value)
}

/// Words as a struct that mirrors them; the error names the key.
pub fn typed<T: DeserializeOwned>(words: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(words).map_err(|error| error.to_string())
}

/// The special ids that `words` names; those that it leaves out come from `fallback`.
pub fn read_special(words: &Value, fallback: SpecialTokens) -> SpecialTokens {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let end = match &words["eos_token_id"] {
        Value::Array(ids) => ids.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect::<Vec<u32>>(),
    };
    SpecialTokens {
        beginning: id(&words["bos_token_id"]).or(fallback.beginning),
        end: if end.is_empty() { fallback.end } else { end },
    }
}

/// Adds the special ids to `words`.
pub fn write_special(words: &mut Value, special: &SpecialTokens) {
    words["bos_token_id"] = json!(special.beginning);
    words["eos_token_id"] = match special.end.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    };
}
