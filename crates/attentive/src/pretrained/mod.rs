//! A pretrained model with everything that its folder has: weights, tokenizer, chat templates, image processor, settings.

mod batch;
mod classify;
mod embed;
mod error;
mod forward;
mod generate;
mod load;
mod translate;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use attentive_checkpoint::{CheckpointError, Description};
use attentive_images::Preprocessor;
use attentive_model::Model;
use attentive_text::{ChatTemplates, Tokenizer};

use crate::assets;

pub use batch::BatchOptions;
pub use classify::{Answer, Classify, ClassifyImages, Fill, Label};
pub use embed::Embed;
pub use error::PretrainedError;
pub use forward::Forward;
pub use generate::{Generate, GeneratedText, Generation, PreparedGeneration};
pub use load::Loader;
pub use translate::{Translate, Translation};

/// A model and all that its folder says about using it.
///
/// Each task is a method that takes the input and returns a request; options are set on the request, and `run` runs it:
///
/// ```no_run
/// use attentive::Pretrained;
///
/// # fn main() -> Result<(), attentive::PretrainedError> {
/// let model = Pretrained::load("sentence-transformers/all-MiniLM-L6-v2")?;
/// let vectors = model.embed(["A cat sat.", "A dog stood."]).run()?;
/// assert_eq!(vectors.len(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Pretrained {
    path: PathBuf,
    model: Model,
    description: Description,
    heads: HeadState,
    /// Where the tokenizer is; `path`, unless the caller names another.
    tokenizer_path: PathBuf,
    tokenizer: OnceLock<Option<Tokenizer>>,
}

/// Whether the model has its heads.
enum HeadState {
    Loaded,
    LeftOut,
    /// They do not load.
    Broken(CheckpointError),
}

impl Pretrained {
    /// Loads a model folder, a .gguf file, or a hub model (`owner/name` or `owner/name@revision`).
    ///
    /// # Errors
    /// When there is no such model, or when its files are broken, not supported, or do not match each other.
    pub fn load(model: impl AsRef<Path>) -> Result<Self, PretrainedError> {
        Loader::new().load(model)
    }

    /// The model's folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model itself, for what the tasks do not cover: forward passes with observers, gradients, caches.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What the folder says about the model.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The tokenizer, if the model has one; read on first use.
    pub fn tokenizer(&self) -> Result<Option<&Tokenizer>, PretrainedError> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer.as_ref());
        }
        let tokenizer = assets::tokenizer(&self.tokenizer_path)?;
        Ok(self.tokenizer.get_or_init(|| tokenizer).as_ref())
    }

    /// The chat templates, if the model has any.
    pub fn chat_templates(&self) -> Result<Option<ChatTemplates>, PretrainedError> {
        Ok(assets::chat_templates(&self.path)?)
    }

    /// The image processor of a model that reads images.
    pub fn preprocessor(&self) -> Result<Preprocessor, PretrainedError> {
        Ok(Preprocessor::from_folder(&self.path)?)
    }

    /// The tokenizer; an error if the model has none.
    fn required_tokenizer(&self) -> Result<&Tokenizer, PretrainedError> {
        self.tokenizer()?
            .ok_or_else(|| PretrainedError::NoTokenizer {
                path: self.path.clone(),
            })
    }

    /// The model with its heads; an error where they could not be loaded.
    fn model_with_heads(&self) -> Result<&Model, PretrainedError> {
        match &self.heads {
            HeadState::Loaded => Ok(&self.model),
            HeadState::LeftOut => Err(PretrainedError::NoHeads),
            HeadState::Broken(error) => Err(PretrainedError::BrokenHeads {
                problem: error.to_string(),
            }),
        }
    }
}

impl fmt::Debug for Pretrained {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.debug_struct("Pretrained")
            .field("path", &self.path)
            .field("model_type", &self.description.model_type)
            .finish_non_exhaustive()
    }
}
