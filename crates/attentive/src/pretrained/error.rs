//! Errors of the front door, each as one sentence: what, where, what to do.

use std::error::Error;
use std::path::PathBuf;

use attentive_checkpoint::CheckpointError;
use attentive_generation::{GenerationError, SettingsFileError};
use attentive_hub::HubError;
use attentive_images::ImageError;
use attentive_tasks::TaskError;
use attentive_tensor::DeviceError;
use attentive_text::TextError;

/// Why a model cannot be loaded, or a task not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// There is no such path, and it is no hub id.
    #[error("{path} is not a model folder; give a folder that holds config.json and model.safetensors, or a hub model as owner/name", path = path.display())]
    NotFound {
        /// What was given.
        path: PathBuf,
    },
    /// There is no such path, and the hub model could not be fetched.
    #[error("{path} is not a local folder, and as a hub model: {source}", path = path.display())]
    Hub {
        /// What was given.
        path: PathBuf,
        /// The cause.
        source: HubError,
    },
    /// A setting of the hub is wrong.
    #[error(transparent)]
    HubSettings(#[from] HubError),
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The tokenizer or a text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An image or its preprocessing.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A task of an encoder.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Generation.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// A text to translate.
    #[error("text {number}: {source}")]
    Source {
        /// The text, counted from one.
        number: usize,
        /// The cause.
        source: GenerationError,
    },
    /// The model was loaded without heads.
    #[error("the model was loaded without its heads, which this task needs; load it with them")]
    NoHeads,
    /// The heads do not load, though the rest of the model does.
    #[error("{problem}")]
    BrokenHeads {
        /// The error.
        problem: String,
    },
    /// The model cannot do a task.
    #[error("{source} (this model can: {abilities})")]
    Cannot {
        /// Why not.
        source: Box<PretrainedError>,
        /// What it can do.
        abilities: String,
    },
    /// There is no tokenizer.
    #[error("{path} has no tokenizer (tokenizer.json, vocab.txt, vocab.json with merges.txt or with source.spm, or a SentencePiece model); download its files", path = path.display())]
    NoTokenizer {
        /// The model.
        path: PathBuf,
    },
    /// There is no chat template.
    #[error("{path} has no chat template; give a plain prompt, or use a model that was trained to chat", path = path.display())]
    NoChatTemplate {
        /// The model.
        path: PathBuf,
    },
    /// The model is no encoder-decoder.
    #[error("{path} has no encoder, and translating needs an encoder-decoder such as Marian, T5 or BART; to continue a text, generate", path = path.display())]
    NoEncoder {
        /// The model.
        path: PathBuf,
    },
    /// The model reads images.
    #[error("the model reads images, and this task needs one that reads text")]
    ReadsImages,
    /// The model reads texts.
    #[error("the model reads text, and this task needs one that reads images")]
    ReadsTexts,
    /// The model is an encoder-decoder.
    #[error("the model is an encoder-decoder; this task needs an encoder")]
    EncoderDecoder,
}

impl From<SettingsFileError> for PretrainedError {
    fn from(error: SettingsFileError) -> Self {
        CheckpointError::from(error).into()
    }
}

impl PretrainedError {
    /// The error of the part that failed, or this one.
    pub fn inner(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Hub { source, .. } | Self::HubSettings(source) => source,
            Self::Device(error) => error,
            Self::Checkpoint(error) => error,
            Self::Text(error) => error,
            Self::Image(error) => error,
            Self::Task(error) => error,
            Self::Cannot { source, .. } => source.inner(),
            Self::Generation(error) | Self::Source { source: error, .. } => error,
            other => other,
        }
    }
}
