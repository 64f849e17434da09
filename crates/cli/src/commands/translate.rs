//! `attentive translate MODEL TEXT…`

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use attentive::assets;
use attentive::checkpoint;
use attentive::generation::{
    Beam, BeamConfig, LogitsProcessors, beam_search, check_prompt, check_tokenizer,
};
use attentive::hub::FileSet;
use attentive::model::Model;
use attentive::text::Tokenizer;
use serde_json::json;

use super::tokenize::no_tokenizer;
use crate::arguments::Translate;
use crate::failure::Usage;
use crate::input;
use crate::model_folder;
use crate::search::{beam_config, max_new_tokens};

/// Default beam width.
const BEAMS: usize = 4;

/// A text to translate.
struct Source {
    text: String,
    /// None for an empty line, which stays empty.
    ids: Option<Vec<u32>>,
}

/// Translates texts, batch by batch.
pub fn run(arguments: Translate) -> Result<ExitCode> {
    if arguments.batch_size == 0 {
        return Err(Usage("--batch-size: 0 is out of range; use 1 or more".to_owned()).into());
    }
    let device = attentive::tensor::device(&arguments.device.device)?;
    let (what, texts) = texts(&arguments)?;
    let folder = model_folder::find(&arguments.model, FileSet::Model)?;
    let (model, description) = checkpoint::load(&folder, &device)?;
    if model.config().encoder.is_none() {
        return Err(Usage(no_encoder(&arguments.model)).into());
    }
    let tokenizer =
        assets::tokenizer(&folder)?.ok_or_else(|| Usage(no_tokenizer(&arguments.model)))?;
    check_tokenizer(&model, Some(&tokenizer))?;
    let settings = &description.generation;
    if settings.do_sample == Some(true) && arguments.search.beams.is_none() {
        settings.check_no_sampling()?;
    }
    settings.check_single_sequence()?;
    let config = BeamConfig {
        tokenizer_vocabulary: Some(tokenizer.vocabulary()),
        ..beam_config(
            &arguments.search,
            &description,
            (arguments.search.beams.or(settings.num_beams)).unwrap_or(BEAMS),
            max_new_tokens(arguments.max_new_tokens, settings, 1)?,
            LogitsProcessors::from_settings(&description.special, settings, 1)?,
        )
    };
    config.validate()?;
    // All lines are tokenized first, so that errors are reported before the first batch runs.
    let mut sources = Vec::with_capacity(texts.len());
    for (index, text) in texts.into_iter().enumerate() {
        let source = encode(&model, &tokenizer, &arguments.prefix, text);
        sources.push(source.with_context(|| format!("{what} {}", index + 1))?);
    }
    let mut out = std::io::stdout().lock();
    for batch in sources.chunks(arguments.batch_size) {
        write_batch(&mut out, &model, &tokenizer, batch, &config, arguments.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The texts, and what messages call one of them.
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

fn encode(model: &Model, tokenizer: &Tokenizer, prefix: &str, text: String) -> Result<Source> {
    if text.trim().is_empty() {
        return Ok(Source { text, ids: None });
    }
    let ids = tokenizer.encode(&format!("{prefix}{text}"))?;
    check_prompt(model, &ids)?;
    Ok(Source {
        text,
        ids: Some(ids),
    })
}

fn write_batch(
    out: &mut impl Write,
    model: &Model,
    tokenizer: &Tokenizer,
    batch: &[Source],
    config: &BeamConfig,
    as_json: bool,
) -> Result<()> {
    let ids: Vec<Vec<u32>> = batch
        .iter()
        .filter_map(|source| source.ids.clone())
        .collect();
    let mut found = beam_search(model, &ids, config)?.into_iter();
    for source in batch {
        let best: Option<Beam> = (source.ids.as_ref())
            .and_then(|_| found.next())
            .and_then(|texts| texts.into_iter().next());
        let translation = match &best {
            Some(beam) => tokenizer.decode(&beam.ids)?,
            None => String::new(),
        };
        match as_json {
            false => writeln!(out, "{translation}")?,
            true => {
                let json = json!({
                    "source": source.text,
                    "translation": translation,
                    "score": best.map(|beam| beam.score),
                });
                writeln!(out, "{json}")?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// The error message for a model without an encoder.
fn no_encoder(folder: &Path) -> String {
    format!(
        "{} has no encoder, and translating needs an encoder-decoder such as Marian, T5 or BART; to continue a text use attentive generate",
        folder.display()
    )
}
