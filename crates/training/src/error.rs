//! Errors of training, each as one sentence: what, where, what to do.

use std::path::PathBuf;

use attentive_checkpoint::CheckpointError;
use attentive_data::DataError;
use attentive_model::ConfigError;
use attentive_text::TextError;

use crate::RecipeError;

/// Why a run cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// The folder already holds a run.
    #[error("{folder} already holds a run; resume it, overwrite it, or choose another folder", folder = folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds no run, but files that a run would replace.
    #[error("{folder} holds other files that a run would replace, such as {file}; choose another folder", folder = folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// One of the files.
        file: &'static str,
    },
    /// The folder or one of its parents is a file.
    #[error("{file} is a file, so {folder} cannot be a folder; choose another folder", file = file.display(), folder = folder.display())]
    NotAFolder {
        /// The folder.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// Another process is training in the folder.
    #[error("another process is training in {folder}; wait until it ends, or choose another folder", folder = folder.display())]
    Running {
        /// The folder.
        folder: PathBuf,
    },
    /// The resumed run has already done more steps.
    #[error(
        "training.steps: {steps} is less than the {done} steps already done; use {done} or more"
    )]
    FewerSteps {
        /// The steps of the recipe.
        steps: u64,
        /// Steps done.
        done: u64,
    },
    /// The sample's prompt does not fit into the model.
    #[error(
        "sample.prompt: it has {tokens} tokens and the model reads at most {length}; shorten it"
    )]
    LongPrompt {
        /// Tokens of the prompt.
        tokens: usize,
        /// The model's length.
        length: usize,
    },
    /// The recipe of a resumed run has changed in a part that must not change.
    #[error("{folder} was started with another `{part}`; resume without changing it, or overwrite the run", folder = folder.display())]
    Changed {
        /// The folder.
        folder: PathBuf,
        /// The part of the recipe.
        part: &'static str,
    },
    /// The text is not the one that the run was started with.
    #[error("the data is not what {folder} was started with; restore it, or overwrite the run", folder = folder.display())]
    OtherData {
        /// The folder.
        folder: PathBuf,
    },
    /// A line of the metrics, other than the last, is not one.
    #[error("{path}: line {number} is not a metric; delete the line to go on without it", path = path.display())]
    BrokenMetrics {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        number: usize,
    },
    /// The saved state cannot be used.
    #[error("{path} is broken ({problem}); delete it to start this run from scratch", path = path.display())]
    BrokenState {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The model's vocabulary is smaller than the tokenizer's.
    #[error(
        "model.vocabulary: {model} is less than the tokenizer's {tokenizer} tokens; use 0 to take the tokenizer's"
    )]
    SmallVocabulary {
        /// The model's.
        model: usize,
        /// The tokenizer's.
        tokenizer: usize,
    },
    /// Training diverged. Nothing of the failed step was saved.
    #[error(
        "the {quantity} is not finite after step {step}; {} with a lower optimizer.learning_rate",
        if *saved { "resume from the last checkpoint" } else { "start again" }
    )]
    Diverged {
        /// The loss, the gradient norm, or the held-out loss.
        quantity: &'static str,
        /// Steps done.
        step: u64,
        /// Whether there is a checkpoint to resume from.
        saved: bool,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
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
    /// The model's settings are invalid.
    #[error("model.{0}")]
    Config(#[from] ConfigError),
    /// The text cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The tokenizer of the run cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A model folder cannot be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
