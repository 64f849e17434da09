//! Loading a model, with options.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use attentive_checkpoint::{self as checkpoint, CheckpointError, Heads};
use attentive_hub::{Event, FileSet, Listener};
use attentive_tensor::device;
use attentive_text::TokenizerOptions;

use super::{HeadState, Pretrained, PretrainedError};
use crate::locate::locate;

/// Loads models, with options.
///
/// ```no_run
/// # fn main() -> Result<(), attentive::PretrainedError> {
/// use attentive::pretrained::Loader;
///
/// let model = Loader::new().model_type("bert").without_heads().load("my-old-bert")?;
/// # Ok(())
/// # }
/// ```
pub struct Loader<'l> {
    device: String,
    options: checkpoint::LoadOptions,
    tokenizer: Option<PathBuf>,
    lower_case: Option<bool>,
    on_download: Box<Listener<'l>>,
}

impl Default for Loader<'_> {
    fn default() -> Self {
        Self {
            device: "cpu".to_owned(),
            options: checkpoint::LoadOptions::default(),
            tokenizer: None,
            lower_case: None,
            on_download: Box::new(|_| {}),
        }
    }
}

impl<'l> Loader<'l> {
    /// Loads on the CPU, with all heads.
    pub fn new() -> Self {
        Self::default()
    }

    /// The device: `cpu`, or `cuda`, `metal`, `rocm`, `vulkan`, `webgpu` in builds with that feature.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = name.into();
        self
    }

    /// Leaves out the heads, which embeddings do not need: they are neither read nor checked.
    pub fn without_heads(mut self) -> Self {
        self.options.heads = Heads::None;
        self
    }

    /// The `model_type`, for a config.json that does not say it.
    pub fn model_type(mut self, model_type: impl Into<String>) -> Self {
        self.options.model_type = Some(model_type.into());
        self
    }

    /// The config.json, for a folder that has none.
    pub fn config(mut self, file: impl Into<PathBuf>) -> Self {
        self.options.config = Some(file.into());
        self
    }

    /// Another folder with the tokenizer's files, or a tokenizer.json.
    pub fn tokenizer(mut self, path: impl Into<PathBuf>) -> Self {
        self.tokenizer = Some(path.into());
        self
    }

    /// Whether the tokenizer lower-cases text, for a tokenizer_config.json that does not say it (`do_lower_case`).
    pub fn lower_case(mut self, lower_case: bool) -> Self {
        self.lower_case = Some(lower_case);
        self
    }

    /// Receives the progress of downloads.
    pub fn on_download(mut self, listener: impl FnMut(Event) + 'l) -> Self {
        self.on_download = Box::new(listener);
        self
    }

    /// Loads a model folder, a .gguf file, or a hub model (`owner/name` or `owner/name@revision`).
    ///
    /// A model whose heads do not load is loaded without them; the tasks that need them say why.
    pub fn load(mut self, model: impl AsRef<Path>) -> Result<Pretrained, PretrainedError> {
        let device = device(&self.device)?;
        let path = locate(model.as_ref(), FileSet::Model, &mut self.on_download)?;
        let mut heads = match self.options.heads {
            Heads::All => HeadState::Loaded,
            Heads::None => HeadState::LeftOut,
        };
        let loaded = checkpoint::load_with(&path, &self.options, &device);
        let (model, description) = match loaded {
            Err(error) if self.options.heads == Heads::All && may_be_the_heads(&error) => {
                let without = checkpoint::LoadOptions {
                    heads: Heads::None,
                    ..self.options.clone()
                };
                // Where the rest does not load either, the first error is the more complete one.
                let Ok(loaded) = checkpoint::load_with(&path, &without, &device) else {
                    return Err(error.into());
                };
                heads = HeadState::Broken(error);
                loaded
            }
            loaded => loaded?,
        };
        Ok(Pretrained {
            tokenizer_options: TokenizerOptions {
                model_type: self.options.model_type,
                do_lower_case: self.lower_case,
            },
            tokenizer_path: self.tokenizer.unwrap_or_else(|| path.clone()),
            path,
            model,
            description,
            heads,
            tokenizer: OnceLock::new(),
        })
    }
}

/// Whether the heads may be the cause of an error.
fn may_be_the_heads(error: &CheckpointError) -> bool {
    matches!(
        error,
        CheckpointError::Config { .. } | CheckpointError::Tensors { .. }
    )
}
