//! `attentive generate MODEL`

mod write;

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use attentive::generation::{
    BeamConfig, GenerationConfig, Rules, Sampling, check, check_prompt, check_tokenizer,
};
use attentive::model::{Model, checkpoint};
use attentive::text::Tokenizer;

use crate::arguments::Generate;
use crate::failure::Usage;
use crate::input::standard_input;
use crate::search::{beam_config, most_tokens};
use write::{Task, write_found, write_sampled};

/// Continues a text, streaming it, or searches for the likeliest one.
pub fn run(arguments: Generate) -> Result<ExitCode> {
    check_options(&arguments)?;
    let device = attentive::tensor::device(&arguments.device.device)?;
    let (model, description) = checkpoint::load(&arguments.model, &device)?;
    let tokenizer = Tokenizer::of_folder(&arguments.model)?;
    if tokenizer.is_none() && !arguments.stop.is_empty() {
        return Err(no_tokenizer(&arguments.model, "--stop").into());
    }
    let (text, mut prompt) = read_prompt(&arguments, tokenizer.as_ref())?;
    let has_encoder = model.config().encoder.is_some();
    if prompt.is_empty() && !has_encoder {
        prompt.extend(description.special.beginning);
    }
    // A decoder that looks at an encoder begins with one token.
    let before = if has_encoder { 1 } else { prompt.len() };
    let settings = &description.generation;
    let rules = Rules::of_folder(&description.special, settings, before);
    let max_tokens = most_tokens(arguments.max_tokens, settings, before);
    let of_folder = settings
        .beams
        .filter(|_| sampling_option(&arguments).is_none());
    let beams = arguments.search.beams.or(of_folder).unwrap_or(1);
    check_tokenizer(&model, tokenizer.as_ref())?;
    let task = Task {
        model: &model,
        tokenizer: tokenizer.as_ref(),
        text: &text,
        prompt: &prompt,
        as_json: arguments.json,
    };
    if beams == 1 {
        check_search_options(&arguments)?;
        let config = GenerationConfig {
            max_tokens,
            sampling: sampling(&arguments, &model),
            stop: arguments.stop,
            rules,
        };
        // Nothing is shown of a prompt that cannot be continued.
        check(&model, tokenizer.as_ref(), &prompt, &config)?;
        write_sampled(&task, &config)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.stop.is_empty() {
        let sentence = "--stop ends a text while it is written, which a search cannot do; give --beams 1 or leave it out";
        return Err(Usage(sentence.to_owned()).into());
    }
    let config = BeamConfig {
        returned: arguments.returned.unwrap_or(1),
        repetition_penalty: arguments.repetition_penalty,
        possible: tokenizer.as_ref().map(Tokenizer::vocabulary),
        ..beam_config(&arguments.search, &description, beams, max_tokens, rules)
    };
    config.validate()?;
    check_prompt(&model, &prompt)?;
    write_found(&task, &config)?;
    Ok(ExitCode::SUCCESS)
}

fn sampling(arguments: &Generate, model: &Model) -> Sampling {
    // What an encoder reads mostly asks for one right answer.
    let careful = model.config().encoder.is_some() && sampling_option(arguments).is_none();
    let temperature = if careful { 0.0 } else { 0.8 };
    Sampling {
        temperature: arguments.temperature.unwrap_or(temperature),
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        repetition_penalty: arguments.repetition_penalty,
        seed: arguments.seed.unwrap_or_else(another_seed),
    }
}

/// The first option that was given for drawing tokens at random.
fn sampling_option(arguments: &Generate) -> Option<&'static str> {
    let options = [
        ("--temperature", arguments.temperature.is_some()),
        ("--top-k", arguments.top_k.is_some()),
        ("--top-p", arguments.top_p.is_some()),
        ("--seed", arguments.seed.is_some()),
    ];
    options
        .into_iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| name)
}

/// Refuses options that contradict each other or mean nothing, whatever the model.
fn check_options(arguments: &Generate) -> Result<()> {
    let sampling = Sampling {
        temperature: arguments.temperature.unwrap_or(0.0),
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        repetition_penalty: arguments.repetition_penalty,
        seed: 0,
    };
    sampling.validate()?;
    if arguments.stop.iter().any(String::is_empty) {
        let sentence =
            "--stop: an empty string would end every text at once; give a string or leave it out";
        return Err(Usage(sentence.to_owned()).into());
    }
    match (arguments.search.beams, sampling_option(arguments)) {
        (Some(2..), Some(option)) => Err(Usage(format!(
            "--beams searches for the likeliest text and {option} is for drawing one at random; leave one of them out"
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Refuses options of searches where none is made.
fn check_search_options(arguments: &Generate) -> Result<(), Usage> {
    let options = [
        (
            "--length-penalty",
            arguments.search.length_penalty.is_some(),
        ),
        (
            "--early-stopping",
            arguments.search.early_stopping.is_some(),
        ),
        ("--return", arguments.returned.is_some()),
    ];
    match options.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Usage(format!(
            "{option} is for searches with several beams; give --beams 4, or leave it out"
        ))),
        None => Ok(()),
    }
}

fn no_tokenizer(folder: &Path, what: &str) -> Usage {
    let folder = folder.display();
    Usage(format!(
        "{folder} has no tokenizer, which {what} needs; give the prompt as --ids 1,2,3"
    ))
}

/// The prompt as text, empty if ids were given, and as ids.
fn read_prompt(arguments: &Generate, tokenizer: Option<&Tokenizer>) -> Result<(String, Vec<u32>)> {
    if !arguments.ids.is_empty() {
        return Ok((String::new(), arguments.ids.clone()));
    }
    let text = prompt_text(arguments)?;
    if text.is_empty() {
        return Ok((text, Vec::new()));
    }
    let tokenizer = tokenizer.ok_or_else(|| no_tokenizer(&arguments.model, "a text prompt"))?;
    let ids = tokenizer.encode(&text)?;
    Ok((text, ids))
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
