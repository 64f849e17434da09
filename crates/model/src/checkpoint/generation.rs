//! What a model folder says of making texts: the ids with a meaning, and how its authors want texts to be made.
//!
//! Ids may stand in generation_config.json or in config.json, where older folders have them, and a missing one is looked for
//! in the other. The settings are those of generation_config.json alone where there is one, as Hugging Face has it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::CheckpointError;
use super::json::{read as read_json, typed};

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

/// How texts are to be made, as far as a folder says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// The first token that is made.
    pub first: Option<u32>,
    /// The last token that is made, one of these, if the text has not ended before.
    pub last: Vec<u32>,
    /// The most tokens of a sequence, with its prompt or the decoder's start.
    pub longest: Option<usize>,
    /// The most tokens to make; goes before `longest`.
    pub most_tokens: Option<usize>,
    /// The fewest tokens of a sequence, with its prompt or the decoder's start.
    pub shortest: Option<usize>,
    /// The fewest tokens to make.
    pub fewest_tokens: Option<usize>,
    /// How many sequences a beam search follows; one is no search.
    pub beams: Option<usize>,
    /// The power of its length by which the score of a sequence is divided.
    pub length_penalty: Option<f64>,
    /// When a beam search ends.
    pub search_end: Option<SearchEnd>,
    /// No so many tokens in a row occur twice.
    pub no_repeat: Option<usize>,
    /// Tokens, or several in a row, that never occur.
    pub forbidden: Vec<Vec<u32>>,
}

/// When a beam search has found enough, if no length ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchEnd {
    /// As soon as as many sequences have ended as there are beams. Hugging Face's `early_stopping` true.
    Full,
    /// When no beam, ended now, would be better than the worst of those. Hugging Face's false.
    #[default]
    Unlikely,
    /// When no beam can become better, however long it gets. Hugging Face's "never".
    Impossible,
}

/// The settings in Hugging Face's words.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Words {
    forced_bos_token_id: Option<u32>,
    forced_eos_token_id: Value,
    max_length: Option<usize>,
    max_new_tokens: Option<usize>,
    min_length: Option<usize>,
    min_new_tokens: Option<usize>,
    num_beams: Option<usize>,
    length_penalty: Option<f64>,
    early_stopping: Value,
    no_repeat_ngram_size: Option<usize>,
    bad_words_ids: Option<Vec<Vec<u32>>>,
}

/// What config.json, whose words are given, and generation_config.json say of making texts.
pub(super) fn read(
    folder: &Path,
    words: &Value,
) -> Result<(SpecialTokens, GenerationSettings), CheckpointError> {
    let wrong = |name: &str, problem: String| CheckpointError::Config {
        path: folder.join(name),
        problem,
    };
    // A pair of models has the ids of its decoder, unless it says otherwise.
    let special = SpecialTokens::read(&words["decoder"], SpecialTokens::default())
        .and_then(|fallback| SpecialTokens::read(words, fallback))
        .map_err(|problem| wrong("config.json", problem))?;
    let (name, path) = (
        "generation_config.json",
        folder.join("generation_config.json"),
    );
    if !path.exists() {
        let settings = GenerationSettings::read(words);
        return Ok((
            special,
            settings.map_err(|problem| wrong("config.json", problem))?,
        ));
    }
    let words = read_json(&path)?;
    let special = SpecialTokens::read(&words, special).map_err(|problem| wrong(name, problem))?;
    let settings = GenerationSettings::read(&words).map_err(|problem| wrong(name, problem))?;
    Ok((special, settings))
}

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

impl GenerationSettings {
    /// The settings that `words` names.
    pub(super) fn read(words: &Value) -> Result<Self, String> {
        let last = ids(words, "forced_eos_token_id")?;
        let words: Words = typed(words, "")?;
        let search_end = match &words.early_stopping {
            Value::Null => None,
            Value::Bool(true) => Some(SearchEnd::Full),
            Value::Bool(false) => Some(SearchEnd::Unlikely),
            Value::String(word) if word == "never" => Some(SearchEnd::Impossible),
            other => {
                return Err(format!(
                    "early_stopping: there is no {other}; use true, false or \"never\""
                ));
            }
        };
        if let Some(beams) = words.num_beams.filter(|it| !(1..=MOST_BEAMS).contains(it)) {
            return Err(format!(
                "num_beams: {beams} is out of range; use 1 to {MOST_BEAMS}"
            ));
        }
        Ok(Self {
            first: words.forced_bos_token_id,
            last,
            longest: words.max_length,
            most_tokens: words.max_new_tokens,
            shortest: words.min_length,
            fewest_tokens: words.min_new_tokens,
            beams: words.num_beams,
            length_penalty: words.length_penalty,
            search_end,
            no_repeat: words.no_repeat_ngram_size.filter(|size| *size > 0),
            forbidden: words.bad_words_ids.unwrap_or_default(),
        })
    }

    /// Adds the settings to `words`.
    pub(super) fn write(&self, words: &mut Value) {
        let ours = Words {
            forced_bos_token_id: self.first,
            forced_eos_token_id: one_or_more(&self.last),
            max_length: self.longest,
            max_new_tokens: self.most_tokens,
            min_length: self.shortest,
            min_new_tokens: self.fewest_tokens,
            num_beams: self.beams,
            length_penalty: self.length_penalty,
            early_stopping: match self.search_end {
                None => Value::Null,
                Some(SearchEnd::Full) => json!(true),
                Some(SearchEnd::Unlikely) => json!(false),
                Some(SearchEnd::Impossible) => json!("never"),
            },
            no_repeat_ngram_size: self.no_repeat,
            bad_words_ids: Some(self.forbidden.clone()).filter(|words| !words.is_empty()),
        };
        let ours = serde_json::to_value(ours).expect("settings serialize");
        for (name, value) in ours.as_object().into_iter().flatten() {
            if !value.is_null() {
                words[name] = value.clone();
            }
        }
    }
}

/// The ids under a name: none, one, or a list.
fn ids(words: &Value, name: &str) -> Result<Vec<u32>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_written() {
        let settings = GenerationSettings {
            first: Some(3),
            last: vec![2, 5],
            longest: Some(142),
            shortest: Some(56),
            beams: Some(4),
            length_penalty: Some(-0.5),
            search_end: Some(SearchEnd::Impossible),
            no_repeat: Some(3),
            forbidden: vec![vec![9], vec![7, 8]],
            ..GenerationSettings::default()
        };
        let mut words = json!({});
        settings.write(&mut words);
        assert_eq!(GenerationSettings::read(&words), Ok(settings));
        assert_eq!(words["early_stopping"], "never");
        let mut nothing = json!({});
        GenerationSettings::default().write(&mut nothing);
        assert_eq!(nothing, json!({}));
    }

    #[test]
    fn settings_that_mean_nothing_are_told() {
        for (words, problem) in [
            (
                json!({ "early_stopping": "maybe" }),
                "early_stopping: there is no \"maybe\"; use true, false or \"never\"",
            ),
            (
                json!({ "num_beams": 0 }),
                "num_beams: 0 is out of range; use 1 to 1000",
            ),
            (
                json!({ "num_beams": -1 }),
                "num_beams: invalid value: integer `-1`, expected 0 or more",
            ),
            (
                json!({ "forced_eos_token_id": "x" }),
                "forced_eos_token_id: \"x\" is not a token id; use whole numbers",
            ),
        ] {
            assert_eq!(GenerationSettings::read(&words), Err(problem.to_owned()));
        }
    }
}
