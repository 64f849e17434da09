//! The generation settings of a model folder: its special tokens and generation_config.json.
//!
//! Special tokens may be in generation_config.json or, in older folders, in config.json; each falls back on the other file. The
//! other settings come from generation_config.json alone where there is one, as in transformers.

mod generation_config;
#[cfg(test)]
mod tests;
mod unsupported;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use attentive_formats::FileError;
use attentive_formats::error_text::one_line;
use attentive_formats::json::read as read_json;

pub use generation_config::{
    EarlyStopping, ExponentialDecayLengthPenalty, GenerationSettings, SequenceBias,
};

/// The largest beam width. More is a mistake, and each beam costs a row of the batch.
pub const MAX_BEAMS: usize = 1000;

/// Ids of the special tokens that generation needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a text.
    pub bos: Option<u32>,
    /// End a text.
    pub eos: Vec<u32>,
    /// The first token of a decoder with cross-attention, where it is not `bos`.
    pub decoder_start: Option<u32>,
    /// Pads the shorter rows of a batch.
    pub pad: Option<u32>,
}

/// Reads the special tokens and settings of a folder whose config.json is `config`.
pub fn read(
    folder: &Path,
    config: &Value,
) -> Result<(SpecialTokens, GenerationSettings), SettingsFileError> {
    let path = folder.join("config.json");
    // An encoder-decoder of two models falls back on the ids of its decoder.
    let special = SpecialTokens::read(&config["decoder"], SpecialTokens::default())
        .and_then(|fallback| SpecialTokens::read(config, fallback))
        .map_err(|problem| wrong(&path, problem))?;
    let generation_config = folder.join("generation_config.json");
    if !generation_config.exists() {
        // The other keys of config.json belong to the model.
        let config = unsupported::generation_keys(config);
        return Ok((special, settings_from(&config, &path)?));
    }
    let config = read_json(&generation_config)?;
    let special = SpecialTokens::read(&config, special)
        .map_err(|problem| wrong(&generation_config, problem))?;
    Ok((special, settings_from(&config, &generation_config)?))
}

fn settings_from(config: &Value, path: &Path) -> Result<GenerationSettings, SettingsFileError> {
    let settings = GenerationSettings::read(config).map_err(|problem| wrong(path, problem))?;
    Ok(GenerationSettings {
        path: path.to_owned(),
        ..settings
    })
}

fn wrong(path: &Path, problem: String) -> SettingsFileError {
    SettingsFileError::Setting {
        path: path.to_owned(),
        problem,
    }
}

/// Why the generation settings of a model folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsFileError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A setting cannot work or is not supported.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Setting {
        /// The file.
        path: PathBuf,
        /// Which setting, and what is wrong with it.
        problem: String,
    },
}

/// The keys of [`SpecialTokens`].
const SPECIAL: [&str; 4] = [
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "pad_token_id",
];

impl SpecialTokens {
    /// Reads the ids from `config`; missing ones are taken from `fallback`.
    pub fn read(config: &Value, fallback: Self) -> Result<Self, String> {
        let first = |name: &str| Ok::<_, String>(token_ids(config, name)?.first().copied());
        let eos = token_ids(config, "eos_token_id")?;
        Ok(Self {
            bos: first("bos_token_id")?.or(fallback.bos),
            eos: if eos.is_empty() { fallback.eos } else { eos },
            decoder_start: first("decoder_start_token_id")?.or(fallback.decoder_start),
            pad: first("pad_token_id")?.or(fallback.pad),
        })
    }

    /// Adds the ids to `config`.
    pub fn write(&self, config: &mut Value) {
        config["bos_token_id"] = json!(self.bos);
        config["eos_token_id"] = one_or_more(&self.eos);
        for (name, id) in [
            ("decoder_start_token_id", self.decoder_start),
            ("pad_token_id", self.pad),
        ] {
            if let Some(id) = id {
                config[name] = json!(id);
            }
        }
    }
}

/// The ids of a key: none, one, or a list.
pub fn token_ids(config: &Value, name: &str) -> Result<Vec<u32>, String> {
    let values = match &config[name] {
        Value::Null => &[],
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| format!("{name}: {value} is not a token id; use whole numbers"))
    };
    values.iter().map(id).collect()
}

fn one_or_more(ids: &[u32]) -> Value {
    match ids {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}
