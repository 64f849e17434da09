//! `attentive generate MODEL`

mod options;
mod write;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use attentive::assets;
use attentive::checkpoint;
use attentive::generation::{
    BeamConfig, GenerationConfig, LogitsProcessors, check, check_prompt, check_tokenizer,
};
use attentive::hub::FileSet;
use attentive::text::{ChatEnd, ChatMessage, Tokenizer};

use crate::arguments::Generate;
use crate::failure::Usage;
use crate::input::standard_input;
use crate::model_folder;
use crate::search::{beam_config, max_new_tokens};
use options::{beams, check_options, check_search_options, returned, sampling};
use write::{Task, write_beams, write_sampled};

/// Streams a sampled text, or prints the result of beam search.
pub fn run(arguments: Generate) -> Result<ExitCode> {
    check_options(&arguments)?;
    let device = attentive::tensor::device(&arguments.device.device)?;
    let folder = model_folder::find(&arguments.model, FileSet::Model)?;
    let (model, description) = checkpoint::load(&folder, &device)?;
    let tokenizer = assets::tokenizer(&folder)?;
    if tokenizer.is_none() && !arguments.stop.is_empty() {
        return Err(no_tokenizer(&arguments.model, "--stop").into());
    }
    let Prompt {
        text,
        shown,
        ids: mut prompt,
    } = read_prompt(&arguments, &folder, tokenizer.as_ref())?;
    let has_encoder = model.config().encoder.is_some();
    if prompt.is_empty() && !has_encoder {
        prompt.extend(description.special.bos);
    }
    // The decoder of an encoder-decoder starts with one token.
    let prompt_length = if has_encoder { 1 } else { prompt.len() };
    let settings = &description.generation;
    let mut processors =
        LogitsProcessors::from_settings(&description.special, settings, prompt_length)?;
    processors.repetition_penalty = arguments
        .repetition_penalty
        .or(processors.repetition_penalty);
    let max_new_tokens = max_new_tokens(arguments.max_new_tokens, settings, prompt_length)?;
    let beams = beams(&arguments, settings)?;
    check_tokenizer(&model, tokenizer.as_ref())?;
    let task = Task {
        model: &model,
        tokenizer: tokenizer.as_ref(),
        text: &text,
        shown: &shown,
        prompt: &prompt,
        as_json: arguments.json,
    };
    if beams == 1 {
        check_search_options(&arguments, settings)?;
        let config = GenerationConfig {
            max_new_tokens,
            sampling: sampling(&arguments, settings, has_encoder)?,
            stop_strings: arguments.stop,
            processors,
        };
        // Checked before the prompt is printed.
        check(&model, tokenizer.as_ref(), &prompt, &config)?;
        write_sampled(&task, &config)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.stop.is_empty() {
        let message = "--stop needs sampling or greedy decoding, not beam search; give --beams 1 or leave it out";
        return Err(Usage(message.to_owned()).into());
    }
    if arguments.returned.is_none() {
        settings.check_num_return_sequences(beams)?;
    }
    let config = BeamConfig {
        num_return_sequences: returned(&arguments, settings),
        tokenizer_vocabulary: tokenizer.as_ref().map(Tokenizer::vocabulary),
        ..beam_config(
            &arguments.search,
            &description,
            beams,
            max_new_tokens,
            processors,
        )
    };
    config.validate()?;
    check_prompt(&model, &prompt)?;
    write_beams(&task, &config)?;
    Ok(ExitCode::SUCCESS)
}

fn no_tokenizer(folder: &Path, what: &str) -> Usage {
    let folder = folder.display();
    Usage(format!(
        "{folder} has no tokenizer, which {what} needs; give the prompt as --ids 1,2,3"
    ))
}

/// The prompt.
#[derive(Default)]
struct Prompt {
    /// As text; empty if ids were given.
    text: String,
    /// The part to print before the continuation.
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
        let message = "--chat: there is no message; give one by --prompt or on standard input";
        return Err(Usage(message.to_owned()).into());
    }
    if text.is_empty() {
        return Ok(Prompt::default());
    }
    let tokenizer = tokenizer.ok_or_else(|| no_tokenizer(&arguments.model, "a text prompt"))?;
    if arguments.chat {
        let text = apply_chat_template(arguments, model, text)?;
        return Ok(Prompt {
            ids: tokenizer.encode_without_special(&text)?,
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

/// The prompt in the model's chat template, ending with the generation prompt.
fn apply_chat_template(arguments: &Generate, model: &Path, text: String) -> Result<String> {
    let templates = assets::chat_templates(model)?.ok_or_else(|| {
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
    Ok(templates.render(None, &messages, ChatEnd::GenerationPrompt)?)
}

fn prompt_text(arguments: &Generate) -> Result<String> {
    if let Some(prompt) = &arguments.prompt {
        return Ok(prompt.clone());
    }
    let Some(mut text) = standard_input()? else {
        return Ok(String::new());
    };
    // The newline that `echo` adds is not part of the prompt.
    let length = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(length);
    Ok(text)
}
