//! JSON files of model folders.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::FileError;
use crate::error_text::plain_serde_error;
use crate::mapped::refuse_directory;

/// Reads a JSON object.
pub fn read(path: &Path) -> Result<Value, FileError> {
    let text = refuse_directory(path).and_then(|()| std::fs::read_to_string(path));
    let text = text.map_err(|source| FileError::Io {
        path: path.to_owned(),
        source,
    })?;
    let broken = |problem: String| FileError::Broken {
        path: path.to_owned(),
        problem,
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if !value.is_object() {
        return Err(broken("it is not a JSON object".to_owned()));
    }
    Ok(value)
}

/// Deserializes a JSON object; an error names the key as a path that starts with `prefix`.
pub fn typed<T: DeserializeOwned>(object: &Value, prefix: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        let parts = [prefix, &path].into_iter();
        let parts: Vec<&str> = parts.filter(|part| !["", "."].contains(part)).collect();
        let problem = plain_serde_error(&error.into_inner().to_string());
        match parts.as_slice() {
            [] => problem,
            parts => format!("{}: {problem}", parts.join(".")),
        }
    })
}
