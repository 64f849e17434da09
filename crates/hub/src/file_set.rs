//! The files of a repository that each use needs.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde_json::Value;

use crate::FileKind;
use crate::error::excerpt;
use crate::id::is_file_name;

/// Which files of a model to download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSet {
    /// Only the config.
    Config,
    /// The config and the tokenizer.
    Tokenizer,
    /// Everything.
    Model,
}

/// Required for every model.
const CONFIG: &str = "config.json";

const CONFIG_FILES: &[&str] = &[CONFIG, "generation_config.json"];

/// Each of these is sufficient as a vocabulary.
const VOCABULARY_FILES: &[&str] = &[
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
];

const TOKENIZER_FILES: &[&str] = &[
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
];

/// Image preprocessing and sentence pooling.
const MODEL_FILES: &[&str] = &[
    "preprocessor_config.json",
    MODULES,
    "sentence_bert_config.json",
];

/// Lists the module folders of a sentence-transformers model.
const MODULES: &str = "modules.json";

/// Weight files in order of preference, which is also that of the loaders.
const WEIGHT_FILES: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// The assets of a model besides config.json, generation_config.json and weights: tokenizer and preprocessor files. Those that
/// modules.json names are not included.
pub fn assets() -> impl Iterator<Item = &'static str> {
    let groups = [VOCABULARY_FILES, TOKENIZER_FILES, MODEL_FILES];
    groups.into_iter().flatten().copied()
}

/// The configs of the modules in modules.json, ignoring paths outside of the folder. The loader of the modules reports invalid
/// ones; the model may be used without them.
pub(crate) fn module_settings(folder: &Path) -> BTreeSet<String> {
    let text = std::fs::read(folder.join(MODULES)).unwrap_or_default();
    let modules: Value = serde_json::from_slice(&text).unwrap_or_default();
    let modules = modules.as_array().into_iter().flatten();
    let paths = modules.filter_map(|module| module["path"].as_str());
    paths
        // The empty path is the model itself.
        .filter(|path| !path.is_empty() && !path.contains(char::is_control))
        .filter_map(|path| {
            let parts = Path::new(path).components().map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            });
            let parts: Option<Vec<&str>> = parts.chain([Some(CONFIG)]).collect();
            Some(parts?.join("/"))
        })
        .collect()
}

impl FileSet {
    /// The files to download if the repository has them, without weights.
    pub(crate) fn small_files(self) -> Vec<&'static str> {
        let groups: &[&[&str]] = match self {
            Self::Config => &[CONFIG_FILES],
            Self::Tokenizer => &[CONFIG_FILES, VOCABULARY_FILES, TOKENIZER_FILES],
            Self::Model => &[CONFIG_FILES, VOCABULARY_FILES, TOKENIZER_FILES, MODEL_FILES],
        };
        groups.concat()
    }

    /// The first missing file of a snapshot, if it is incomplete. Weights are downloaded last, so a snapshot that has them is
    /// complete.
    pub(crate) fn missing(self, folder: &Path) -> Option<String> {
        if !folder.join(CONFIG).exists() {
            return Some(CONFIG.to_owned());
        }
        let has_vocabulary = || {
            VOCABULARY_FILES
                .iter()
                .any(|name| folder.join(name).exists())
        };
        match self {
            Self::Config => None,
            Self::Tokenizer if has_vocabulary() => None,
            // A complete model may have no vocabulary at all.
            Self::Tokenizer => missing_weights(folder).map(|_| "its tokenizer".to_owned()),
            Self::Model => missing_weights(folder),
        }
    }
}

/// Checks that config.json exists.
pub(crate) fn check_config(names: &BTreeSet<String>) -> Result<(), String> {
    match names.contains(CONFIG) {
        true => Ok(()),
        false => Err(CONFIG.to_owned()),
    }
}

/// The preferred weight file of a repository.
pub(crate) fn weights_of(names: &BTreeSet<String>) -> Result<&'static str, String> {
    let found = WEIGHT_FILES.into_iter().find(|name| names.contains(*name));
    found.ok_or_else(|| {
        "weights (model.safetensors, pytorch_model.bin, or an index of shards)".to_owned()
    })
}

/// Whether a weight file is an index of shards.
pub(crate) fn is_index(name: &str) -> bool {
    name.ends_with(".index.json")
}

/// The kind of a file.
pub(crate) fn file_kind(name: &str) -> FileKind {
    match name.ends_with(".safetensors") || name.ends_with(".bin") {
        true => FileKind::Weights,
        false => FileKind::Small,
    }
}

/// The shards of an index; the error says what is wrong with it.
pub(crate) fn shards_of(path: &Path) -> Result<BTreeSet<String>, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let index: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let map = index["weight_map"].as_object();
    let map = map.filter(|map| !map.is_empty()).ok_or("no weight_map")?;
    map.values()
        .map(|shard| {
            let name = shard.as_str().unwrap_or_default();
            // An index must not escape its folder.
            match is_file_name(name) {
                true => Ok(name.to_owned()),
                false => Err(format!("`{}` is not a file name", excerpt(name))),
            }
        })
        .collect()
}

fn missing_weights(folder: &Path) -> Option<String> {
    let Some(file) = WEIGHT_FILES
        .into_iter()
        .find(|name| folder.join(name).exists())
    else {
        return Some(WEIGHT_FILES[0].to_owned());
    };
    if !is_index(file) {
        return None;
    }
    let Ok(shards) = shards_of(&folder.join(file)) else {
        return Some(file.to_owned());
    };
    shards
        .into_iter()
        .find(|shard| !folder.join(shard).exists())
}
