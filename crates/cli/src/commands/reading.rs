//! What the commands that read texts have in common: the model, its tokenizer, and where texts come from.

use std::path::Path;

use anyhow::Result;
use attentive::companions;
use attentive::model::Model;
use attentive::model::checkpoint::{self, Description};
use attentive::tasks::Batches;
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
    cut: bool,
}

impl Reader {
    /// Loads the model and the tokenizer of a folder.
    pub fn load(folder: &Path, arguments: &TextArguments) -> Result<Self> {
        let device = attentive::tensor::device(&arguments.device.device)?;
        let (model, description) = checkpoint::load(folder, &device)?;
        Self::with(folder, model, description, arguments)
    }

    /// Adds the tokenizer of its folder to a model.
    pub fn with(
        folder: &Path,
        model: Model,
        description: Description,
        arguments: &TextArguments,
    ) -> Result<Self> {
        if model.config().patches.is_some() {
            let sentence = "the model reads pictures, and this needs one that reads texts";
            return Err(Usage(sentence.to_owned()).into());
        }
        if model.config().encoder.is_some() {
            let sentence = "the model is an encoder with a decoder; this needs one that only reads";
            return Err(Usage(sentence.to_owned()).into());
        }
        let tokenizer =
            companions::tokenizer(folder)?.ok_or_else(|| Usage(no_tokenizer(folder)))?;
        Ok(Self {
            model,
            description,
            tokenizer,
            batch: usize::from(arguments.batch),
            cut: arguments.cut,
        })
    }

    /// How the texts of this chunk are read; `longest` is where a folder wants them to be cut.
    pub fn batches(&self, chunk: usize, longest: Option<usize>) -> Batches<'_> {
        Batches {
            model: &self.model,
            tokenizer: &self.tokenizer,
            batch: self.batch,
            before: chunk * self.chunk(),
            cut: longest.or(self.cut.then_some(usize::MAX)),
        }
    }

    /// How many texts are read before something is shown: enough that those of similar lengths find each other.
    pub fn chunk(&self) -> usize {
        8 * self.batch
    }
}

/// The texts that were given, or lines of a file or of standard input.
pub fn texts(arguments: &TextArguments) -> Result<Vec<String>> {
    let texts = match &arguments.file {
        Some(path) => input::lines_of_file(path)?,
        None if arguments.texts.is_empty() => input::lines_of_standard_input()?,
        None => arguments.texts.clone(),
    };
    match texts.is_empty() {
        true => Err(Usage("there is no text; give one, or lines of a file".to_owned()).into()),
        false => Ok(texts),
    }
}
