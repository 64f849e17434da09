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
use attentive_generation::GenerationError;
use attentive_images::Preprocessor;
use attentive_model::Model;
use attentive_model::attention::Role;
use attentive_model::head::TokenTask;
use attentive_tasks::TaskError;
use attentive_text::{ChatTemplates, Tokenizer, TokenizerOptions};

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
    tokenizer_options: TokenizerOptions,
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
        let tokenizer = assets::tokenizer_with(&self.tokenizer_path, &self.tokenizer_options)?;
        Ok(self.tokenizer.get_or_init(|| tokenizer).as_ref())
    }

    /// The chat templates, if the model has any.
    pub fn chat_templates(&self) -> Result<Option<ChatTemplates>, PretrainedError> {
        if self.tokenizer_path.is_dir()
            && let Some(templates) = assets::chat_templates(&self.tokenizer_path)?
        {
            return Ok(Some(templates));
        }
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
                path: self.tokenizer_path.clone(),
            })
    }

    /// What the model can do, in words: "generate text", "embed texts", …
    pub fn abilities(&self) -> Vec<&'static str> {
        let config = self.model.config();
        let has_lm_head = config.head.lm_head().is_some();
        if config.stack.patches.is_some() {
            let classifies = config.sequence_classifier.is_some();
            return classifies
                .then_some("classify images")
                .into_iter()
                .collect();
        }
        if config.encoder.is_some() {
            return vec!["generate text from a source", "translate"];
        }
        let is_causal = config.stack.role == Role::Causal;
        let task = config.token_classifier.as_ref().map(|it| it.task);
        let all = [
            ("generate text", is_causal && has_lm_head),
            ("fill masks", !is_causal && has_lm_head),
            ("classify texts", config.sequence_classifier.is_some()),
            ("label tokens", task == Some(TokenTask::Labels)),
            ("answer questions", task == Some(TokenTask::Span)),
            ("embed texts", true),
        ];
        let able = all.into_iter().filter(|(_, able)| *able);
        able.map(|(name, _)| name).collect()
    }

    /// An error about a task that the model cannot do, with what it can.
    fn cannot(&self, error: impl Into<PretrainedError>) -> PretrainedError {
        let source = error.into();
        let is_about_the_model = matches!(
            source,
            PretrainedError::Task(TaskError::NoHead { .. })
                | PretrainedError::Generation(GenerationError::NoDecoder)
                | PretrainedError::NoEncoder { .. }
                | PretrainedError::ReadsImages
                | PretrainedError::ReadsTexts
                | PretrainedError::EncoderDecoder
        );
        match (is_about_the_model, self.abilities()) {
            (true, abilities) if !abilities.is_empty() => PretrainedError::Cannot {
                source: Box::new(source),
                abilities: abilities.join(", "),
            },
            _ => source,
        }
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
