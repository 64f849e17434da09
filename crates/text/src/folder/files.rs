//! The small JSON files beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::TextError;

/// Far above any of these files; a larger one is a mistake, and is not read into memory.
const LARGEST_FILE: u64 = 1 << 30;

/// What the folder says about its tokenizer, besides the vocabulary. A file that is not there is an empty object.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    /// tokenizer_config.json
    pub(crate) config: Map<String, Value>,
    /// special_tokens_map.json
    pub(crate) special: Map<String, Value>,
    /// added_tokens.json
    pub(crate) added: Map<String, Value>,
    /// config.json, the configuration of the model
    pub(crate) model: Map<String, Value>,
}

impl Files {
    pub(crate) fn read(folder: &Path) -> Result<Self, TextError> {
        let object = |name: &str| object(&folder.join(name));
        Ok(Self {
            folder: folder.to_owned(),
            config: object("tokenizer_config.json")?,
            special: object("special_tokens_map.json")?,
            added: object("added_tokens.json")?,
            model: object("config.json")?,
        })
    }

    /// A setting of tokenizer_config.json that must be true or false; absent and null are `None`.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, TextError> {
        self.setting(name, "true or false", Value::as_bool)
    }

    /// A setting of tokenizer_config.json that must be a whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>, TextError> {
        self.setting(name, "a whole number", |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok())
        })
    }

    /// A setting of tokenizer_config.json that must be a text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, TextError> {
        self.setting(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn setting<T>(
        &self,
        name: &str,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, TextError> {
        match self.config.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| self.broken_config(format!("`{name}` is not {kind}"))),
        }
    }

    /// tokenizer_config.json cannot be used, and why.
    pub(crate) fn broken_config(&self, cause: impl Into<String>) -> TextError {
        broken(&self.folder.join("tokenizer_config.json"), cause)
    }

    /// The folder does not say enough, and what is missing.
    pub(crate) fn undecided(&self, cause: impl Into<String>) -> TextError {
        TextError::UndecidedTokenizer {
            folder: self.folder.clone(),
            cause: cause.into(),
        }
    }
}

/// The file cannot be used, and why.
pub(crate) fn broken(path: &Path, cause: impl Into<String>) -> TextError {
    TextError::BrokenTokenizerFile {
        path: path.to_owned(),
        cause: cause.into(),
    }
}

/// The bytes of the file, or `None` if there is no such file.
pub(crate) fn bytes_if_there(path: &Path) -> Result<Option<Vec<u8>>, TextError> {
    let failed = |source: std::io::Error| TextError::Io {
        path: path.to_owned(),
        source,
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(about) if !about.is_file() => return Err(broken(path, "it is not a file")),
        Ok(about) if about.len() > LARGEST_FILE => {
            return Err(broken(path, "it is larger than a gigabyte"));
        }
        Ok(_) => {}
    }
    std::fs::read(path).map(Some).map_err(failed)
}

/// The text of the file, or `None` if there is no such file.
pub(crate) fn text_if_there(path: &Path) -> Result<Option<String>, TextError> {
    let Some(bytes) = bytes_if_there(path)? else {
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
    let Some(bytes) = bytes_if_there(path)? else {
        return Ok(Map::new());
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(broken(path, "it does not hold a JSON object")),
        Err(error) => Err(broken(path, format!("it is not JSON: {error}"))),
    }
}
