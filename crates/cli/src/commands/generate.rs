//! `attentive generate MODEL`

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use attentive::generation::{GenerationConfig, Sampling, StopReason, generate};
use attentive::model::checkpoint;
use attentive::text::Tokenizer;
use serde_json::json;

use crate::arguments::Generate;
use crate::failure::Usage;

/// Continues a text, streaming it.
pub fn run(arguments: Generate) -> Result<ExitCode> {
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        repetition_penalty: arguments.repetition_penalty,
        seed: arguments.seed.unwrap_or_else(another_seed),
    };
    sampling.validate()?;
    let device = attentive::tensor::device(&arguments.device.device)?;
    let (model, description) = checkpoint::load(&arguments.model, &device)?;
    let tokenizer = load_tokenizer(&arguments.model)?;
    if tokenizer.is_none() && !arguments.stop.is_empty() {
        return Err(no_tokenizer(&arguments.model, "--stop").into());
    }
    let text = if arguments.ids.is_empty() {
        prompt_text(&arguments)?
    } else {
        String::new()
    };
    let mut prompt = arguments.ids.clone();
    if !text.is_empty() {
        let tokenizer = tokenizer
            .as_ref()
            .ok_or_else(|| no_tokenizer(&arguments.model, "a text prompt"))?;
        prompt = tokenizer.encode(&text)?;
    }
    if prompt.is_empty() {
        prompt.extend(description.special.beginning);
    }
    let config = GenerationConfig {
        max_tokens: arguments.max_tokens,
        sampling,
        stop: arguments.stop,
        end: description.special.end,
    };
    let streamed = !arguments.json;
    let mut out = std::io::stdout().lock();
    if streamed && tokenizer.is_some() {
        write!(out, "{text}")?;
    }
    let started = Instant::now();
    let mut shown = Ok(());
    let done = generate(&model, tokenizer.as_ref(), &prompt, &config, |piece| {
        let ids = piece.id.filter(|_| tokenizer.is_none());
        if streamed && shown.is_ok() {
            shown = match ids {
                Some(id) => write!(out, "{id} "),
                None => write!(out, "{}", piece.text),
            }
            .and_then(|()| out.flush());
        }
    })?;
    shown?;
    if streamed {
        writeln!(out)?;
    } else {
        let seconds = started.elapsed().as_secs_f64();
        let words = json!({
            "prompt": text,
            "prompt_ids": prompt,
            "ids": done.ids,
            "text": done.text,
            "stop_reason": match done.reason {
                StopReason::End => "end",
                StopReason::Stop => "stop",
                StopReason::Length => "length",
            },
            "seed": config.sampling.seed,
            "tokens_per_second": done.ids.len() as f64 / seconds,
        });
        writeln!(out, "{words}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The tokenizer of a model folder, if it has one.
fn load_tokenizer(folder: &Path) -> Result<Option<Tokenizer>> {
    let path = folder.join("tokenizer.json");
    Ok(path.exists().then(|| Tokenizer::load(&path)).transpose()?)
}

fn no_tokenizer(folder: &Path, what: &str) -> Usage {
    let folder = folder.display();
    Usage(format!(
        "{folder} has no tokenizer.json, which {what} needs; give the prompt as --ids 1,2,3"
    ))
}

fn prompt_text(arguments: &Generate) -> Result<String> {
    if let Some(prompt) = &arguments.prompt {
        return Ok(prompt.clone());
    }
    if std::io::stdin().is_terminal() {
        return Ok(String::new());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("standard input")?;
    // The newline that `echo` adds is not meant.
    let length = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(length);
    Ok(text)
}

fn another_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_nanos() as u64)
}
