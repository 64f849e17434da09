//! `attentive translate MODEL TEXT…`

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Error, Result};
use attentive::PretrainedError;
use serde_json::json;

use crate::arguments::Translate;
use crate::failure::Usage;
use crate::input;
use crate::model_folder;
use crate::progress::Count;

/// Translates texts, batch by batch.
pub fn run(arguments: Translate) -> Result<ExitCode> {
    if arguments.batch_size == 0 {
        return Err(Usage("--batch-size: 0 is out of range; use 1 or more".to_owned()).into());
    }
    let options = arguments.options();
    options.validate()?;
    let (what, texts) = texts(&arguments)?;
    let model = model_folder::load(&arguments.model, Some(&arguments.tokenizer))?;
    let mut out = std::io::stdout().lock();
    let mut sources = texts.iter();
    let mut progress = Count::of(texts.len());
    let done = model
        .translate(&texts)
        .prefix(&arguments.prefix)
        .options(options)
        .batch_size(arguments.batch_size)
        .run_each(|translation| {
            let source = sources.next();
            match arguments.json {
                false => writeln!(out, "{}", translation.text)?,
                true => {
                    let json = json!({
                        "source": source,
                        "translation": translation.text,
                        "score": translation.score,
                    });
                    writeln!(out, "{json}")?;
                }
            }
            out.flush()?;
            progress.advance(1);
            Ok::<(), Error>(())
        });
    drop(progress);
    done.map_err(|error| match error.downcast() {
        Ok(PretrainedError::Source { number, source }) => {
            Error::from(source).context(format!("{what} {number}"))
        }
        Ok(error) => error.into(),
        Err(error) => error,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The texts to translate, and what messages call one of them.
fn texts(arguments: &Translate) -> Result<(&'static str, Vec<String>)> {
    let (what, texts) = match &arguments.file {
        Some(file) => ("line", input::lines_of_file(file)?),
        None if arguments.texts.is_empty() => ("line", input::lines_of_standard_input()?),
        None => ("text", arguments.texts.clone()),
    };
    let is_blank = |text: &String| text.trim().is_empty();
    if what == "text"
        && let Some(index) = texts.iter().position(is_blank)
    {
        let number = index + 1;
        return Err(Usage(format!("text {number} is empty; give one, or leave it out")).into());
    }
    if texts.iter().all(is_blank) {
        return Err(Usage("the input has no text; give at least one line".to_owned()).into());
    }
    Ok((what, texts))
}
