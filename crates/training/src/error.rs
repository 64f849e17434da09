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
    #[error("{folder} already holds a run; resume it, overwrite it, or choose another folder", folder = folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds files of the names that a run writes, and no run.
    #[error("{folder} holds other files that a run would replace, such as {file}; choose another folder", folder = folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// One of the files.
        file: &'static str,
    },
    /// A file stands where the folder or one above it should be.
    #[error("{file} is a file, so {folder} cannot be a folder; choose another folder", file = file.display(), folder = folder.display())]
    NotAFolder {
        /// The folder.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// Another process trains in the folder.
    #[error("another process is training in {folder}; wait until it ends, or choose another folder", folder = folder.display())]
    Running {
        /// The folder.
        folder: PathBuf,
    },
    /// Fewer steps are asked for than the run has made.
    #[error(
        "training.steps: {steps} is fewer than the {done} steps that are done already; use {done} or more"
    )]
    FewerSteps {
        /// What is asked for.
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
    /// The recipe of a run that is resumed has changed where it must not.
    #[error("{folder} was started with another `{part}`; resume without changing it, or overwrite the run", folder = folder.display())]
    Changed {
        /// The folder.
        folder: PathBuf,
        /// The part of the recipe.
        part: &'static str,
    },
    /// The text is not what the run was started on.
    #[error("the data is not what {folder} was started on; restore it, or overwrite the run", folder = folder.display())]
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
    /// The weights have run away. Nothing of it was saved.
    #[error(
        "the {number} is not a number after step {step}; {} with a lower optimizer.learning_rate",
        if *saved { "resume from the last save" } else { "start anew" }
    )]
    Diverged {
        /// Which number: the loss, the gradient norm, or the held-out loss.
        number: &'static str,
        /// Steps done.
        step: u64,
        /// Whether there is a save to resume from.
        saved: bool,
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
