//! What can go wrong in a training run, each as one sentence.

use std::path::PathBuf;

use attentive_model::ConfigError;
use attentive_model::checkpoint::CheckpointError;
use attentive_text::TextError;

use crate::RecipeError;

/// Why a run cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// The folder holds a run already.
    #[error("{folder} already holds a run; give --resume to go on with it, --overwrite to start anew, or another --out", folder = folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The recipe of a run that is resumed has changed where it must not.
    #[error("{folder} was started with another `{part}`; resume without changing it, or start anew with --overwrite", folder = folder.display())]
    Changed {
        /// The folder.
        folder: PathBuf,
        /// The part of the recipe.
        part: &'static str,
    },
    /// The text is not what the run was started on.
    #[error("the data is not what {folder} was started on; restore it, or start anew with --overwrite", folder = folder.display())]
    OtherData {
        /// The folder.
        folder: PathBuf,
    },
    /// The saved state cannot be used.
    #[error("{path} is broken ({problem}); delete it to start this run from its beginning", path = path.display())]
    BrokenState {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The model has fewer entries than the tokenizer has tokens.
    #[error(
        "model.vocabulary: {model} is less than the tokenizer's {tokenizer} tokens; use 0 to take as many as there are"
    )]
    SmallVocabulary {
        /// The model's.
        model: usize,
        /// The tokenizer's.
        tokenizer: usize,
    },
    /// The loss is no number any more.
    #[error(
        "the loss is not a number after step {step}; lower optimizer.learning_rate and resume from the last save"
    )]
    Diverged {
        /// Steps done.
        step: u64,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// The recipe is wrong.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The recipe in a run folder is wrong.
    #[error("{path}: {error}", path = path.display())]
    SavedRecipe {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: RecipeError,
    },
    /// The model's settings cannot work.
    #[error("model.{0}")]
    Config(#[from] ConfigError),
    /// The text cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A model folder cannot be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
