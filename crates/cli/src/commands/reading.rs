//! Shared by the commands that take texts as input: where they come from, and in which chunks they are read.

use anyhow::Result;
use attentive::pretrained::BatchOptions;

use crate::arguments::TextArguments;
use crate::failure::Usage;
use crate::input;
use crate::progress::Count;

/// The texts of a command, in chunks.
pub struct Reader {
    texts: Vec<String>,
    position: usize,
    batch_size: usize,
    truncate: bool,
    progress: Count,
}

impl Reader {
    /// The texts of the command line, or the lines of a file or of standard input.
    pub fn of(arguments: &TextArguments) -> Result<Self> {
        let texts = match &arguments.file {
            Some(path) => input::lines_of_file(path)?,
            None if arguments.texts.is_empty() => input::lines_of_standard_input()?,
            None => arguments.texts.clone(),
        };
        if texts.is_empty() {
            let message = "the input has no text; give at least one line";
            return Err(Usage(message.to_owned()).into());
        }
        Ok(Self {
            progress: Count::of(texts.len()),
            texts,
            position: 0,
            batch_size: usize::from(arguments.batch_size),
            truncate: arguments.truncate,
        })
    }

    /// All texts.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The next texts: several batches, so that batches hold texts of similar length.
    pub fn next_chunk(&mut self) -> Option<(&[String], BatchOptions)> {
        self.progress.reach(self.position);
        let rest = &self.texts[self.position..];
        let chunk = &rest[..rest.len().min(8 * self.batch_size)];
        let options = BatchOptions {
            size: self.batch_size,
            truncate: self.truncate,
            offset: self.position,
        };
        self.position += chunk.len();
        (!chunk.is_empty()).then_some((chunk, options))
    }
}
