//! `attentive generate MODEL`

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use attentive::companions;
use attentive::generation::{GenerationConfig, Piece, Sampling, StopReason, check, generate};
use attentive::hub::Wanted;
use attentive::model::{Model, checkpoint};
use attentive::text::{ChatEnd, ChatMessage, Tokenizer};
use serde_json::json;

use crate::arguments::Generate;
use crate::failure::Usage;
use crate::input::standard_input;
use crate::model_folder;

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
    if arguments.stop.iter().any(String::is_empty) {
        let sentence =
            "--stop: an empty string would end every text at once; give a string or leave it out";
        return Err(Usage(sentence.to_owned()).into());
    }
    let device = attentive::tensor::device(&arguments.device.device)?;
    let folder = model_folder::find(&arguments.model, Wanted::Model)?;
    let (model, description) = checkpoint::load(&folder, &device)?;
    let tokenizer = companions::tokenizer(&folder)?;
    if tokenizer.is_none() && !arguments.stop.is_empty() {
        return Err(no_tokenizer(&arguments.model, "--stop").into());
    }
    let Prompt {
        text,
        shown,
        ids: mut prompt,
    } = read_prompt(&arguments, &folder, tokenizer.as_ref())?;
    if prompt.is_empty() {
        prompt.extend(description.special.beginning);
    }
    let config = GenerationConfig {
        max_tokens: arguments.max_tokens,
        sampling,
        stop: arguments.stop,
        end: description.special.end,
    };
    // Nothing is shown of a prompt that cannot be continued.
    check(&model, tokenizer.as_ref(), &prompt, &config)?;
    let mut out = std::io::stdout().lock();
    if !arguments.json {
        stream(
            &mut out,
            &model,
            tokenizer.as_ref(),
            (&shown, &prompt),
            &config,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let go_on = |_: Piece| ControlFlow::Continue(());
    let done = generate(&model, tokenizer.as_ref(), &prompt, &config, go_on)?;
    let words = json!({
        "prompt": text,
        "prompt_ids": prompt,
        "ids": done.ids,
        "text": done.text,
        "stop_reason": match done.reason {
            StopReason::End => "end",
            StopReason::Stop => "stop",
            StopReason::Length => "length",
            StopReason::Unwanted => "unwanted",
        },
        "seed": config.sampling.seed,
        "tokens_per_second": done.ids.len() as f64 / started.elapsed().as_secs_f64(),
    });
    writeln!(out, "{words}")?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the prompt and what follows it, as it comes: as text with a tokenizer, as ids without. Ends at once when
/// nobody reads it any more.
fn stream(
    out: &mut impl Write,
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    (text, prompt): (&str, &[u32]),
    config: &GenerationConfig,
) -> Result<()> {
    if tokenizer.is_some() {
        write!(out, "{text}")?;
        out.flush()?;
    }
    let mut shown = Ok(());
    generate(model, tokenizer, prompt, config, |piece| {
        shown = match piece.id.filter(|_| tokenizer.is_none()) {
            Some(id) => write!(out, "{id} "),
            None => write!(out, "{}", piece.text),
        }
        .and_then(|()| out.flush());
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    shown?;
    writeln!(out)?;
    Ok(())
}

fn no_tokenizer(folder: &Path, what: &str) -> Usage {
    let folder = folder.display();
    Usage(format!(
        "{folder} has no tokenizer, which {what} needs; give the prompt as --ids 1,2,3"
    ))
}

/// What the model goes on with.
#[derive(Default)]
struct Prompt {
    /// As text; empty if ids were given.
    text: String,
    /// What of it stands before the model's words on the screen.
    shown: String,
    ids: Vec<u32>,
}

fn read_prompt(
    arguments: &Generate,
    model: &Path,
    tokenizer: Option<&Tokenizer>,
) -> Result<Prompt> {
    if !arguments.ids.is_empty() {
        return Ok(Prompt {
            ids: arguments.ids.clone(),
            ..Prompt::default()
        });
    }
    let text = prompt_text(arguments)?;
    if text.is_empty() && arguments.chat {
        let sentence = "--chat: there is no message; give one by --prompt or on standard input";
        return Err(Usage(sentence.to_owned()).into());
    }
    if text.is_empty() {
        return Ok(Prompt::default());
    }
    let tokenizer = tokenizer.ok_or_else(|| no_tokenizer(&arguments.model, "a text prompt"))?;
    if arguments.chat {
        let text = in_template(arguments, model, text)?;
        return Ok(Prompt {
            ids: tokenizer.encode_bare(&text)?,
            text,
            shown: String::new(),
        });
    }
    Ok(Prompt {
        ids: tokenizer.encode(&text)?,
        shown: text.clone(),
        text,
    })
}

/// A message in the model's chat template, up to where its answer begins.
fn in_template(arguments: &Generate, model: &Path, text: String) -> Result<String> {
    let templates = companions::chat_templates(model)?.ok_or_else(|| {
        Usage(format!(
            "{} has no chat template, which --chat needs; leave --chat out, or use a model that was trained to chat",
            model.display()
        ))
    })?;
    let message = |role: &str, content: String| ChatMessage {
        role: role.to_owned(),
        content,
    };
    let system = arguments.system.clone().map(|it| message("system", it));
    let messages: Vec<ChatMessage> = system.into_iter().chain([message("user", text)]).collect();
    Ok(templates.render(None, &messages, ChatEnd::AwaitsAnswer)?)
}

fn prompt_text(arguments: &Generate) -> Result<String> {
    if let Some(prompt) = &arguments.prompt {
        return Ok(prompt.clone());
    }
    let Some(mut text) = standard_input()? else {
        return Ok(String::new());
    };
    // The newline that `echo` adds is not meant.
    let length = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(length);
    Ok(text)
}

fn another_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // As small as the seeds that can be given, so that any seed that is shown can be given again.
    now.map_or(0, |time| time.as_nanos() as u64 >> 1)
}
