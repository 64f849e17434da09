//! What can be wrong with a model folder, each as one sentence: what, where, what to do.

use std::fmt;
use std::path::PathBuf;

use attentive_formats::{FileError, shown};

use super::one_line;

/// Why a model folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A folder that holds a recurrent encoder-decoder where a transformer is needed.
    #[error(
        "{}: this is a recurrent encoder-decoder (model_type \"attentive-recurrent\") and no transformer; read it with `checkpoint::load_recurrent`",
        path.display()
    )]
    Recurrent {
        /// Its config.json.
        path: PathBuf,
    },
    /// There is neither a folder nor a file of a model.
    #[error("{path} is not a model folder; give a folder that holds config.json and model.safetensors, or a .gguf file", path = path.display())]
    NoFolder {
        /// What was given.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// A file is there but is not what it should be.
    #[error("{path} is broken ({problem}); fetch or save it again", path = path.display(), problem = one_line(problem))]
    Broken {
        /// The file.
        path: PathBuf,
        /// What a parser said.
        problem: String,
    },
    /// The config.json, or a file's own metadata, has settings that cannot work or are not supported.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Config {
        /// The file.
        path: PathBuf,
        /// Which setting, and what is wrong with it.
        problem: String,
    },
    /// An input of a pass does not fit the model.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Input {
        /// The file.
        path: PathBuf,
        /// Which input, and what is wrong with it.
        problem: String,
    },
    /// No format has this `model_type`.
    #[error("{path}: model_type \"{model_type}\" is not supported; supported are {}", supported.join(", "), path = path.display(), model_type = one_line(model_type))]
    UnknownType {
        /// The file.
        path: PathBuf,
        /// What it says.
        model_type: String,
        /// What it could say.
        supported: Vec<&'static str>,
    },
    /// The tensors do not fit the settings.
    #[error("{path} does not fit its {settings}: {problems}", path = path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// Where the settings stand: config.json, or a file's own metadata.
        settings: &'static str,
        /// All that is wrong.
        problems: TensorProblems,
    },
    /// A number is beyond what the numbers of a file can be.
    #[error(
        "{tensor} holds {value}, and float16 ends at 65504; save the model as bfloat16, which reaches as far as float32"
    )]
    Overflow {
        /// The tensor, by the name under which it would be saved.
        tensor: String,
        /// The number.
        value: f32,
    },
    /// The folder has a config.json and no weights.
    #[error("{folder} has no weights (model.safetensors, pytorch_model.bin, or an index of several) yet; wait for the first save of its run, or fetch them", folder = folder.display())]
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
        }
    }
}

/// All that is wrong between a model and a file of tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorProblems {
    /// Tensors that the model needs and the file lacks.
    pub missing: Vec<String>,
    /// Tensors of the file that the model has no place for.
    pub unexpected: Vec<String>,
    /// Tensors of another shape or type than the model needs, each with both.
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
            ("misshapen", &self.misshapen),
        ];
        let parts: Vec<String> = kinds
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{} {kind} ({})", names.len(), listed(names)))
            .collect();
        write!(out, "{}", parts.join("; "))
    }
}

/// The first names of a list, and how many more there are. Names come from files, which may hold anything.
fn listed(names: &[String]) -> String {
    const MOST: usize = 10;
    let mut list: Vec<String> = names.iter().take(MOST).map(|name| shown(name)).collect();
    if names.len() > MOST {
        list.push(format!("and {} more", names.len() - MOST));
    }
    list.join(", ")
}
