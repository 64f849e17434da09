//! What a model folder says of making texts: the ids with a meaning, and how its authors want texts to be made.
//!
//! Ids may stand in generation_config.json or in config.json, where older folders have them, and a missing one is looked for
//! in the other. The settings are those of generation_config.json alone where there is one, as Hugging Face has it.

mod settings;
#[cfg(test)]
mod tests;
mod unsupported;

use std::path::Path;

use serde_json::{Value, json};

use super::CheckpointError;
use super::json::read as read_json;

pub use settings::{Bias, EndPull, GenerationSettings, SearchEnd};

/// The most sequences that a beam search follows. Beyond this no search is meant, and each costs a row of the batch.
pub const MOST_BEAMS: usize = 1000;

/// Ids with a meaning for generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// What a text starts with.
    pub beginning: Option<u32>,
    /// What ends a text.
    pub end: Vec<u32>,
    /// What a decoder that looks at an encoder starts with, where that is not `beginning`.
    pub decoder_start: Option<u32>,
    /// What fills up rows that are shorter than others.
    pub padding: Option<u32>,
}

/// What config.json, whose words are given, and generation_config.json say of making texts.
pub(super) fn read(
    folder: &Path,
    words: &Value,
) -> Result<(SpecialTokens, GenerationSettings), CheckpointError> {
    let path = folder.join("config.json");
    // A pair of models has the ids of its decoder, unless it says otherwise.
    let special = SpecialTokens::read(&words["decoder"], SpecialTokens::default())
        .and_then(|fallback| SpecialTokens::read(words, fallback))
        .map_err(|problem| wrong(&path, problem))?;
    let own = folder.join("generation_config.json");
    if !own.exists() {
        // The other words of config.json are of the model.
        let words = unsupported::of_generation(words);
        return Ok((special, settings_of(&words, &path)?));
    }
    let words = read_json(&own)?;
    let special = SpecialTokens::read(&words, special).map_err(|problem| wrong(&own, problem))?;
    Ok((special, settings_of(&words, &own)?))
}

fn settings_of(words: &Value, path: &Path) -> Result<GenerationSettings, CheckpointError> {
    let settings = GenerationSettings::read(words).map_err(|problem| wrong(path, problem))?;
    Ok(GenerationSettings {
        path: path.to_owned(),
        ..settings
    })
}

fn wrong(path: &Path, problem: String) -> CheckpointError {
    CheckpointError::Config {
        path: path.to_owned(),
        problem,
    }
}

/// The keys of [`SpecialTokens`].
const SPECIAL: [&str; 4] = [
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "pad_token_id",
];

impl SpecialTokens {
    /// The ids that `words` names; those that it leaves out come from `fallback`.
    pub(super) fn read(words: &Value, fallback: Self) -> Result<Self, String> {
        let first = |name: &str| Ok::<_, String>(ids(words, name)?.first().copied());
        let end = ids(words, "eos_token_id")?;
        Ok(Self {
            beginning: first("bos_token_id")?.or(fallback.beginning),
            end: if end.is_empty() { fallback.end } else { end },
            decoder_start: first("decoder_start_token_id")?.or(fallback.decoder_start),
            padding: first("pad_token_id")?.or(fallback.padding),
        })
    }

    /// Adds the ids to `words`.
    pub(super) fn write(&self, words: &mut Value) {
        words["bos_token_id"] = json!(self.beginning);
        words["eos_token_id"] = one_or_more(&self.end);
        for (name, id) in [
            ("decoder_start_token_id", self.decoder_start),
            ("pad_token_id", self.padding),
        ] {
            if let Some(id) = id {
                words[name] = json!(id);
            }
        }
    }
}

/// The ids under a name: none, one, or a list.
pub(super) fn ids(words: &Value, name: &str) -> Result<Vec<u32>, String> {
    let values = match &words[name] {
        Value::Null => &[],
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| format!("{name}: {value} is not a token id; use whole numbers"))
    };
    values.iter().map(id).collect()
}

fn one_or_more(ids: &[u32]) -> Value {
    match ids {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}
