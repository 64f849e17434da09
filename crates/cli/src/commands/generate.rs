//! `attentive generate MODEL PROMPT`

mod write;

use std::process::ExitCode;

use anyhow::Result;
use attentive::PretrainedError;
use attentive::text::ChatMessage;

use crate::arguments::Generate;
use crate::failure::Usage;
use crate::input::standard_input;
use crate::model_folder;
use write::write;

/// Streams a sampled text, or prints the result of beam search.
pub fn run(arguments: Generate) -> Result<ExitCode> {
    let options = arguments.options();
    // Checked before anything is loaded or read.
    options.validate()?;
    let model = model_folder::load(&arguments.model, Some(&arguments.tokenizer))?;
    let request = if !arguments.ids.is_empty() {
        model.generate_from_ids(arguments.ids.clone())
    } else {
        let text = prompt_text(&arguments)?;
        match arguments.chat {
            true if text.is_empty() => {
                let message =
                    "--chat: there is no message; give one as PROMPT or on standard input";
                return Err(Usage(message.to_owned()).into());
            }
            true => model.chat(messages(&arguments, text)),
            false => model.generate(text),
        }
    };
    let has_stop = !arguments.stop.is_empty();
    if has_stop && model.tokenizer()?.is_none() {
        return Err(no_tokenizer(&arguments, "--stop").into());
    }
    let prepared = match request.options(options).prepare() {
        Err(PretrainedError::NoTokenizer { .. }) => {
            return Err(no_tokenizer(&arguments, "a text prompt").into());
        }
        prepared => prepared?,
    };
    write(prepared, &model, &arguments)?;
    Ok(ExitCode::SUCCESS)
}

fn no_tokenizer(arguments: &Generate, what: &str) -> Usage {
    let folder = arguments.model.model.display();
    Usage(format!(
        "{folder} has no tokenizer, which {what} needs; give the prompt as --ids 1,2,3"
    ))
}

fn messages(arguments: &Generate, text: String) -> Vec<ChatMessage> {
    let system = arguments.system.clone().map(ChatMessage::system);
    system
        .into_iter()
        .chain([ChatMessage::user(text)])
        .collect()
}

fn prompt_text(arguments: &Generate) -> Result<String> {
    if let Some(prompt) = arguments
        .prompt
        .as_ref()
        .or(arguments.prompt_option.as_ref())
    {
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
