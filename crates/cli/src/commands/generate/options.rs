//! From the options of `generate`, and what a model folder says where they are silent, to how tokens are chosen.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use attentive::generation::{Rules, Sampling};
use attentive::model::checkpoint::GenerationSettings;

use crate::arguments::Generate;
use crate::failure::Usage;

/// How many beginnings are followed: one, if tokens are drawn.
pub fn beams(arguments: &Generate, settings: &GenerationSettings) -> Result<usize> {
    if let Some(beams) = arguments.search.beams {
        return Ok(beams);
    }
    if sampling_option(arguments).is_some() {
        return Ok(1);
    }
    settings.check_search_or_drawing()?;
    Ok(settings.beams.unwrap_or(1))
}

/// How many texts of a search are printed.
pub fn returned(arguments: &Generate, settings: &GenerationSettings) -> usize {
    arguments.returned.or(settings.returned).unwrap_or(1)
}

/// How tokens are chosen where there is no search.
pub fn sampling(
    arguments: &Generate,
    settings: &GenerationSettings,
    has_encoder: bool,
) -> Result<Sampling> {
    let asked = sampling_option(arguments).is_some();
    // Whoever wants the likeliest tokens needs nothing of what the folder says of drawing, and whoever draws nothing of
    // its not drawing.
    let is_drawn = match (arguments.temperature, settings.drawn) {
        (Some(0.0), _) => false,
        (_, Some(true)) => true,
        (_, Some(false)) => asked,
        // What an encoder reads mostly asks for one right answer.
        (_, None) => asked || !(has_encoder || settings.temperature == Some(0.0)),
    };
    let ours = Sampling {
        temperature: 0.8,
        ..Sampling::default()
    };
    let base = match (is_drawn, settings.drawn) {
        (false, _) => Sampling::greedy(),
        (true, Some(true)) => Sampling::of_folder(settings)?.unwrap_or(ours),
        (true, _) => ours.with_folder(settings)?,
    };
    Ok(Sampling {
        temperature: arguments.temperature.unwrap_or(base.temperature),
        top_k: arguments.top_k.or(base.top_k),
        top_p: arguments.top_p.or(base.top_p),
        seed: arguments.seed.unwrap_or_else(another_seed),
        ..base
    })
}

/// The first option that was given for drawing tokens at random. A seed is none: it says where drawing starts, if there is
/// any.
fn sampling_option(arguments: &Generate) -> Option<&'static str> {
    let options = [
        ("--temperature", arguments.temperature.is_some()),
        ("--top-k", arguments.top_k.is_some()),
        ("--top-p", arguments.top_p.is_some()),
    ];
    options
        .into_iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| name)
}

/// Refuses options that contradict each other or mean nothing, whatever the model.
pub fn check_options(arguments: &Generate) -> Result<()> {
    let sampling = Sampling {
        temperature: arguments.temperature.unwrap_or(0.0),
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        ..Sampling::default()
    };
    sampling.validate()?;
    let rules = Rules {
        repetition_penalty: arguments.repetition_penalty,
        ..Rules::default()
    };
    rules.validate()?;
    if arguments.stop.iter().any(String::is_empty) {
        let sentence =
            "--stop: an empty string would end every text at once; give a string or leave it out";
        return Err(Usage(sentence.to_owned()).into());
    }
    let seed = arguments.seed.map(|_| "--seed");
    match (arguments.search.beams, sampling_option(arguments).or(seed)) {
        (Some(2..), Some(option)) => Err(Usage(format!(
            "--beams searches for the likeliest text and {option} is for drawing one at random; leave one of them out"
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Refuses options of searches where none is made.
pub fn check_search_options(arguments: &Generate, settings: &GenerationSettings) -> Result<()> {
    if arguments.returned.is_none() {
        settings.check_returned(1)?;
    }
    let options = [
        (
            "--length-penalty",
            arguments.search.length_penalty.is_some(),
        ),
        (
            "--early-stopping",
            arguments.search.early_stopping.is_some(),
        ),
        ("--return", arguments.returned.is_some_and(|it| it != 1)),
    ];
    match options.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Usage(format!(
            "{option} is for searches with several beams; give --beams 4, or leave it out"
        ))
        .into()),
        None => Ok(()),
    }
}

fn another_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // As small as the seeds that can be given, so that any seed that is shown can be given again.
    now.map_or(0, |time| time.as_nanos() as u64 >> 1)
}
