//! Options of `generate` and the folder's generation settings, merged.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use attentive::generation::GenerationSettings;
use attentive::generation::{LogitsProcessors, Sampling};

use crate::arguments::Generate;
use crate::failure::Usage;

/// The beam width; one when sampling.
pub fn beams(arguments: &Generate, settings: &GenerationSettings) -> Result<usize> {
    if let Some(beams) = arguments.search.beams {
        return Ok(beams);
    }
    if sampling_option(arguments).is_some() {
        return Ok(1);
    }
    settings.check_no_beam_sampling()?;
    Ok(settings.num_beams.unwrap_or(1))
}

/// The number of beams to print.
pub fn returned(arguments: &Generate, settings: &GenerationSettings) -> usize {
    arguments
        .returned
        .or(settings.num_return_sequences)
        .unwrap_or(1)
}

/// Sampling settings, for decoding without beam search.
pub fn sampling(
    arguments: &Generate,
    settings: &GenerationSettings,
    has_encoder: bool,
) -> Result<Sampling> {
    let asked = sampling_option(arguments).is_some();
    let do_sample = match (arguments.temperature, settings.do_sample) {
        (Some(0.0), _) => false,
        (_, Some(true)) => true,
        (_, Some(false)) => asked,
        // Tasks of encoder-decoders, such as translation, mostly have one right output.
        (_, None) => asked || !(has_encoder || settings.temperature == Some(0.0)),
    };
    let defaults = Sampling {
        temperature: 0.8,
        ..Sampling::default()
    };
    let base = match (do_sample, settings.do_sample) {
        (false, _) => Sampling::greedy(),
        (true, Some(true)) => Sampling::from_settings(settings)?.unwrap_or(defaults),
        (true, _) => defaults.with_settings(settings)?,
    };
    Ok(Sampling {
        temperature: arguments.temperature.unwrap_or(base.temperature),
        top_k: arguments.top_k.or(base.top_k),
        top_p: arguments.top_p.or(base.top_p),
        seed: arguments.seed.unwrap_or_else(random_seed),
        ..base
    })
}

/// The first sampling option that was given. `--seed` alone does not turn sampling on.
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

/// Refuses options that contradict each other or have no effect, whatever the model.
pub fn check_options(arguments: &Generate) -> Result<()> {
    let sampling = Sampling {
        temperature: arguments.temperature.unwrap_or(0.0),
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        ..Sampling::default()
    };
    sampling.validate()?;
    let processors = LogitsProcessors {
        repetition_penalty: arguments.repetition_penalty,
        ..LogitsProcessors::default()
    };
    processors.validate()?;
    if arguments.stop.iter().any(String::is_empty) {
        let message =
            "--stop: an empty string would end every text at once; give a string or leave it out";
        return Err(Usage(message.to_owned()).into());
    }
    let seed = arguments.seed.map(|_| "--seed");
    match (arguments.search.beams, sampling_option(arguments).or(seed)) {
        (Some(2..), Some(option)) => Err(Usage(format!(
            "--beams is beam search and {option} is for sampling; leave one of them out"
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Refuses options of beam search without beam search.
pub fn check_search_options(arguments: &Generate, settings: &GenerationSettings) -> Result<()> {
    if arguments.returned.is_none() {
        settings.check_num_return_sequences(1)?;
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
            "{option} is for beam search; give --beams 4, or leave it out"
        ))
        .into()),
        None => Ok(()),
    }
}

fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Within the range of --seed, so that a printed seed can be given again.
    now.map_or(0, |time| time.as_nanos() as u64 >> 1)
}
