//! Which files of a repository are needed for what.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde_json::Value;

use crate::FileKind;
use crate::id::is_file_name;

/// What a model is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To describe it: its settings.
    Description,
    /// To cut texts into tokens: settings and vocabularies.
    Tokenizer,
    /// To run it: all of it.
    Model,
}

/// Without it, nothing says what a model is.
const CONFIG: &str = "config.json";

const DESCRIPTION: &[&str] = &[CONFIG, "generation_config.json"];

/// Each of these alone is a vocabulary.
const VOCABULARIES: &[&str] = &[
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
];

const BESIDE_VOCABULARIES: &[&str] = &[
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
];

/// How pictures are prepared, and how sentences become one vector.
const BESIDE_WEIGHTS: &[&str] = &[
    "preprocessor_config.json",
    MODULES,
    "sentence_bert_config.json",
];

/// Names the folders of the modules that make one vector of a sentence.
const MODULES: &str = "modules.json";

/// The forms of weights, the better first; loaders of folders look in the same order.
const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// What a folder may hold beside config.json, generation_config.json and weights that its model is used with; what its
/// modules.json names aside.
pub fn companions() -> impl Iterator<Item = &'static str> {
    let groups = [VOCABULARIES, BESIDE_VOCABULARIES, BESIDE_WEIGHTS];
    groups.into_iter().flatten().copied()
}

/// The settings of the modules that a folder's modules.json names, of those that would lie in the folder. Whoever uses
/// the modules will say what is wrong with the others, or with the file; a model can be of use without them.
pub(crate) fn module_settings(folder: &Path) -> BTreeSet<String> {
    let text = std::fs::read(folder.join(MODULES)).unwrap_or_default();
    let words: Value = serde_json::from_slice(&text).unwrap_or_default();
    let modules = words.as_array().into_iter().flatten();
    let paths = modules.filter_map(|module| module["path"].as_str());
    paths
        // The model itself lies beside the list.
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

impl Wanted {
    /// The files that are fetched where the repository has them, weights aside.
    pub(crate) fn small_files(self) -> Vec<&'static str> {
        let groups: &[&[&str]] = match self {
            Self::Description => &[DESCRIPTION],
            Self::Tokenizer => &[DESCRIPTION, VOCABULARIES, BESIDE_VOCABULARIES],
            Self::Model => &[
                DESCRIPTION,
                VOCABULARIES,
                BESIDE_VOCABULARIES,
                BESIDE_WEIGHTS,
            ],
        };
        groups.concat()
    }

    /// The first file that a folder lacks, if it cannot serve. Weights are fetched last, so a folder that has them was
    /// fetched to the end.
    pub(crate) fn missing(self, folder: &Path) -> Option<String> {
        if !folder.join(CONFIG).exists() {
            return Some(CONFIG.to_owned());
        }
        let has_vocabulary = || VOCABULARIES.iter().any(|name| folder.join(name).exists());
        match self {
            Self::Description => None,
            Self::Tokenizer if has_vocabulary() => None,
            // A model that is here as a whole may have no vocabulary at all.
            Self::Tokenizer => missing_weights(folder).map(|_| "its tokenizer".to_owned()),
            Self::Model => missing_weights(folder),
        }
    }
}

/// Config.json, or why there is none.
pub(crate) fn config_of(names: &BTreeSet<String>) -> Result<(), String> {
    match names.contains(CONFIG) {
        true => Ok(()),
        false => Err(CONFIG.to_owned()),
    }
}

/// The form of weights that is fetched, of those that a repository has.
pub(crate) fn weights_of(names: &BTreeSet<String>) -> Result<&'static str, String> {
    let found = WEIGHTS.into_iter().find(|name| names.contains(*name));
    found.ok_or_else(|| {
        "weights (model.safetensors, pytorch_model.bin, or an index of several)".to_owned()
    })
}

/// Whether a form of weights is an index of several files.
pub(crate) fn is_index(name: &str) -> bool {
    name.ends_with(".index.json")
}

/// What a file of the weights is.
pub(crate) fn kind_of(name: &str) -> FileKind {
    match name.ends_with(".safetensors") || name.ends_with(".bin") {
        true => FileKind::Weights,
        false => FileKind::Small,
    }
}

/// The files that an index names; the error says what is wrong with it.
pub(crate) fn shards_of(index: &Path) -> Result<BTreeSet<String>, String> {
    let text = std::fs::read(index).map_err(|error| error.to_string())?;
    let words: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let map = words["weight_map"].as_object();
    let map = map.filter(|map| !map.is_empty()).ok_or("no weight_map")?;
    map.values()
        .map(|shard| {
            let name = shard.as_str().unwrap_or_default();
            // An index must not lead out of its folder.
            match is_file_name(name) {
                true => Ok(name.to_owned()),
                false => Err(format!("`{}` is no file name", name.escape_debug())),
            }
        })
        .collect()
}

fn missing_weights(folder: &Path) -> Option<String> {
    let Some(form) = WEIGHTS.into_iter().find(|name| folder.join(name).exists()) else {
        return Some(WEIGHTS[0].to_owned());
    };
    if !is_index(form) {
        return None;
    }
    let Ok(shards) = shards_of(&folder.join(form)) else {
        return Some(form.to_owned());
    };
    shards
        .into_iter()
        .find(|shard| !folder.join(shard).exists())
}
