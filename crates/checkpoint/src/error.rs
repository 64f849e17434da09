//! Errors of model folders, each a sentence: what, where, what to do.

use std::fmt;
use std::path::PathBuf;

use attentive_formats::FileError;
use attentive_formats::error_text::{excerpt, one_line};
use attentive_generation::SettingsFileError;

/// Why a model folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The folder holds a recurrent encoder-decoder where a transformer is needed.
    #[error(
        "{}: this is a recurrent encoder-decoder (model_type \"attentive-recurrent\") and not a transformer; load it with `checkpoint::load_recurrent`",
        path.display()
    )]
    Recurrent {
        /// Its config.json.
        path: PathBuf,
    },
    /// The path is neither a model folder nor a model file.
    #[error("{path} is not a model folder; give a folder that holds config.json and model.safetensors, or a .gguf file", path = path.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is corrupt, or of another kind than its name says.
    #[error("{path} is broken ({problem}); download or save it again", path = path.display(), problem = one_line(problem))]
    Broken {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        problem: String,
    },
    /// A file that may be valid is in a form that is not read: another architecture, dtype or layout.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported, and what is.
        problem: String,
    },
    /// The config.json or a file's metadata has invalid or unsupported settings.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Config {
        /// The file.
        path: PathBuf,
        /// Which setting, and what is wrong with it.
        problem: String,
    },
    /// An input of a forward pass does not match the model.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Input {
        /// The file.
        path: PathBuf,
        /// Which input, and what is wrong with it.
        problem: String,
    },
    /// config.json has no `model_type`.
    #[error("{path} has no model_type; add one, or name it when loading; supported are {}", supported.join(", "), path = path.display())]
    NoType {
        /// The file.
        path: PathBuf,
        /// The supported model types.
        supported: Vec<&'static str>,
    },
    /// No format has this `model_type`.
    #[error("{path}: model_type \"{model_type}\" is not supported; supported are {}", supported.join(", "), path = path.display(), model_type = one_line(model_type))]
    UnknownType {
        /// The file.
        path: PathBuf,
        /// The `model_type`.
        model_type: String,
        /// The supported model types.
        supported: Vec<&'static str>,
    },
    /// The tensors do not match the config.
    #[error("{path} does not match its {settings}: {problems}", path = path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// Where the config is: config.json or the file's metadata.
        settings: &'static str,
        /// Every mismatch.
        problems: TensorProblems,
    },
    /// A weight is out of the range of the dtype.
    #[error(
        "{tensor} holds {value}, and the largest float16 is 65504; save the model as bfloat16, which has the range of float32"
    )]
    Overflow {
        /// The tensor, by its name in the file.
        tensor: String,
        /// The weight.
        value: f32,
    },
    /// The folder has a config.json and no weights.
    #[error("{folder} has no weights (model.safetensors, pytorch_model.bin, or an index of shards) yet; wait for the first save of its run, or download them", folder = folder.display())]
    NoWeights {
        /// The folder.
        folder: PathBuf,
    },
}

impl From<FileError> for CheckpointError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { path, source } => Self::Io { path, source },
            FileError::Broken { path, problem } => Self::Broken { path, problem },
            FileError::Unsupported { path, problem } => Self::Unsupported { path, problem },
        }
    }
}

impl From<SettingsFileError> for CheckpointError {
    fn from(error: SettingsFileError) -> Self {
        match error {
            SettingsFileError::File(error) => error.into(),
            SettingsFileError::Setting { path, problem } => Self::Config { path, problem },
        }
    }
}

/// Every missing, unexpected and mis-shaped tensor of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorProblems {
    /// Tensors of the model that the file lacks.
    pub missing: Vec<String>,
    /// Tensors of the file that the model does not have.
    pub unexpected: Vec<String>,
    /// Tensors of another shape or dtype than the model's, each with both.
    pub misshapen: Vec<String>,
}

impl TensorProblems {
    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.misshapen.is_empty()
    }
}

impl fmt::Display for TensorProblems {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let kinds = [
            ("missing", &self.missing),
            ("unexpected", &self.unexpected),
            ("mis-shaped", &self.misshapen),
        ];
        let parts: Vec<String> = kinds
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{} {kind} ({})", names.len(), listed(names)))
            .collect();
        write!(out, "{}", parts.join("; "))
    }
}

/// The first names of a list and the number of others. Names are untrusted input, so they are escaped and truncated.
fn listed(names: &[String]) -> String {
    const MAX_LISTED: usize = 10;
    let mut list: Vec<String> = names
        .iter()
        .take(MAX_LISTED)
        .map(|name| excerpt(name))
        .collect();
    if names.len() > MAX_LISTED {
        list.push(format!("and {} more", names.len() - MAX_LISTED));
    }
    list.join(", ")
}
