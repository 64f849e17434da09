//! Shared by the commands that take texts as input: the model, its tokenizer, and where the texts come from.

use std::path::Path;

use anyhow::Result;
use attentive::assets;
use attentive::checkpoint::{self, Description};
use attentive::model::Model;
use attentive::tasks::Batcher;
use attentive::text::Tokenizer;

use super::tokenize::no_tokenizer;
use crate::arguments::TextArguments;
use crate::failure::Usage;
use crate::input;

/// A model with its tokenizer.
pub struct Reader {
    pub model: Model,
    pub description: Description,
    pub tokenizer: Tokenizer,
    batch: usize,
    truncate: bool,
}

impl Reader {
    /// Loads the model and the tokenizer of a folder.
    pub fn load(folder: &Path, arguments: &TextArguments) -> Result<Self> {
        let device = attentive::tensor::device(&arguments.device.device)?;
        let (model, description) = checkpoint::load(folder, &device)?;
        Self::with(folder, model, description, arguments)
    }

    /// Combines a loaded model with the tokenizer of its folder.
    pub fn with(
        folder: &Path,
        model: Model,
        description: Description,
        arguments: &TextArguments,
    ) -> Result<Self> {
        if model.config().stack.patches.is_some() {
            let problem = "the model reads images, and this command needs one that reads text";
            return Err(Usage(problem.to_owned()).into());
        }
        if model.config().encoder.is_some() {
            let problem = "the model is an encoder-decoder; this command needs an encoder";
            return Err(Usage(problem.to_owned()).into());
        }
        let tokenizer = assets::tokenizer(folder)?.ok_or_else(|| Usage(no_tokenizer(folder)))?;
        Ok(Self {
            model,
            description,
            tokenizer,
            batch: usize::from(arguments.batch_size),
            truncate: arguments.truncate,
        })
    }

    /// The batcher for a chunk of the texts; `max_length` is the length to which the folder truncates texts.
    pub fn batches(&self, chunk: usize, max_length: Option<usize>) -> Batcher<'_> {
        Batcher {
            model: &self.model,
            tokenizer: &self.tokenizer,
            batch_size: self.batch,
            offset: chunk * self.chunk(),
            truncate_to: max_length.or(self.truncate.then_some(usize::MAX)),
        }
    }

    /// Texts per chunk: several batches, so that batches hold texts of similar length.
    pub fn chunk(&self) -> usize {
        8 * self.batch
    }
}

/// The texts of the command line, or the lines of a file or of standard input.
pub fn texts(arguments: &TextArguments) -> Result<Vec<String>> {
    let texts = match &arguments.file {
        Some(path) => input::lines_of_file(path)?,
        None if arguments.texts.is_empty() => input::lines_of_standard_input()?,
        None => arguments.texts.clone(),
    };
    match texts.is_empty() {
        true => Err(Usage("the input has no text; give at least one line".to_owned()).into()),
        false => Ok(texts),
    }
}
