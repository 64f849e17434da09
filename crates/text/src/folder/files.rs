//! The JSON files of a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::TextError;

pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub(super) const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";

/// Far above the size of any of these files; a larger one is refused without reading it.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The configuration of a tokenizer, without the vocabulary. A missing file is an empty object.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    /// tokenizer_config.json
    pub(crate) config: Map<String, Value>,
    /// special_tokens_map.json
    pub(crate) special: Map<String, Value>,
    /// added_tokens.json
    pub(crate) added_tokens: Map<String, Value>,
    /// config.json, the configuration of the model
    pub(crate) model: Map<String, Value>,
}

impl Files {
    pub(crate) fn read(folder: &Path) -> Result<Self, TextError> {
        let object = |name: &str| object(&folder.join(name));
        Ok(Self {
            folder: folder.to_owned(),
            config: object(TOKENIZER_CONFIG)?,
            special: object(SPECIAL_TOKENS_MAP)?,
            added_tokens: object("added_tokens.json")?,
            model: object("config.json")?,
        })
    }

    /// A bool of tokenizer_config.json; absent and null are `None`.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, TextError> {
        self.setting(name, "true or false", Value::as_bool)
    }

    /// A non-negative integer of tokenizer_config.json.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>, TextError> {
        self.setting(name, "a non-negative integer", |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok())
        })
    }

    /// A string of tokenizer_config.json.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, TextError> {
        self.setting(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    fn setting<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, TextError> {
        match self.config.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| self.broken_config(format!("`{name}` is not {expected}"))),
        }
    }

    /// The error for an invalid tokenizer_config.json.
    pub(crate) fn broken_config(&self, cause: impl Into<String>) -> TextError {
        broken(&self.folder.join(TOKENIZER_CONFIG), cause)
    }

    /// The error for settings with which only a tokenizer.json is supported.
    pub(crate) fn unsupported(&self, what: &str) -> TextError {
        let path = self.folder.join(TOKENIZER_CONFIG);
        unsupported(
            &path,
            format!("{what} is not supported without a tokenizer.json; add it"),
        )
    }

    /// The error for a folder that does not determine its tokenizer.
    pub(crate) fn ambiguous(&self, cause: impl Into<String>) -> TextError {
        TextError::AmbiguousTokenizer {
            folder: self.folder.clone(),
            cause: cause.into(),
        }
    }
}

/// The error for an invalid file.
pub(crate) fn broken(path: &Path, cause: impl Into<String>) -> TextError {
    TextError::BrokenTokenizerFile {
        path: path.to_owned(),
        cause: cause.into(),
    }
}

/// The error for a file that may be valid, in a form that is not read here.
pub(crate) fn unsupported(path: &Path, problem: impl Into<String>) -> TextError {
    TextError::UnsupportedTokenizer {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read_bytes_if_exists(path: &Path) -> Result<Option<Vec<u8>>, TextError> {
    let failed = |source: std::io::Error| TextError::Io {
        path: path.to_owned(),
        source,
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.is_file() => return Err(broken(path, "it is not a file")),
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            let problem = "a file of more than a gigabyte is not supported";
            return Err(unsupported(path, problem));
        }
        Ok(_) => {}
    }
    std::fs::read(path).map(Some).map_err(failed)
}

/// Reads a text file; `None` if it does not exist.
pub(crate) fn read_text_if_exists(path: &Path) -> Result<Option<String>, TextError> {
    let Some(bytes) = read_bytes_if_exists(path)? else {
        return Ok(None);
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| TextError::NotUtf8 {
            path: path.to_owned(),
            offset: error.utf8_error().valid_up_to(),
        })
}

fn object(path: &Path) -> Result<Map<String, Value>, TextError> {
    let Some(bytes) = read_bytes_if_exists(path)? else {
        return Ok(Map::new());
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(broken(path, "it does not hold a JSON object")),
        Err(error) => Err(broken(path, format!("it is not JSON: {error}"))),
    }
}
