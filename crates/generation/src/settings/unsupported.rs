//! Hugging Face's generation settings that would change the texts and are not supported. Generation refuses them; everything
//! else ignores them, and saving a model keeps them.

use serde_json::{Map, Value};

use super::generation_config::is_known;
use super::{GenerationSettings, SettingsFileError, wrong};

/// When a setting has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applies {
    Always,
    WhenSampling,
}

/// A key, when it applies, and whether a value disables it.
type Unsupported = (&'static str, Applies, fn(&Value) -> bool);

const UNSUPPORTED: [Unsupported; 15] = [
    ("guidance_scale", Applies::Always, |it| is(it, 1.0)),
    ("watermarking_config", Applies::Always, |_| false),
    ("penalty_alpha", Applies::Always, |it| is(it, 0.0)),
    ("dola_layers", Applies::Always, |_| false),
    ("num_beam_groups", Applies::Always, |it| is(it, 1.0)),
    ("constraints", Applies::Always, |_| false),
    ("force_words_ids", Applies::Always, |_| false),
    ("forced_decoder_ids", Applies::Always, is_empty),
    ("stop_strings", Applies::Always, is_empty),
    ("max_time", Applies::Always, |_| false),
    ("token_healing", Applies::Always, is_false),
    ("remove_invalid_values", Applies::Always, is_false),
    ("top_h", Applies::WhenSampling, |_| false),
    ("epsilon_cutoff", Applies::WhenSampling, |it| is(it, 0.0)),
    ("eta_cutoff", Applies::WhenSampling, |it| is(it, 0.0)),
];

fn is(value: &Value, number: f64) -> bool {
    value.as_f64() == Some(number)
}

fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// The part of config.json that belongs to generation.
pub(super) fn generation_keys(config: &Value) -> Value {
    let is_generation_key =
        |key: &str| is_known(key) || UNSUPPORTED.iter().any(|(name, ..)| *name == key);
    let entries = config.as_object().into_iter().flatten();
    let entries: Map<String, Value> = entries
        .filter(|(key, value)| is_generation_key(key) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Value::Object(entries)
}

impl GenerationSettings {
    /// Refuses unsupported settings that always apply.
    pub fn check(&self) -> Result<(), SettingsFileError> {
        self.refuse(Applies::Always)
    }

    /// Refuses unsupported and out-of-range settings of sampling.
    pub fn check_sampling(&self) -> Result<(), SettingsFileError> {
        self.refuse(Applies::WhenSampling)?;
        self.check_sampling_ranges()
            .map_err(|problem| wrong(&self.path, problem))
    }

    /// Refuses beam search with sampling.
    pub fn check_no_beam_sampling(&self) -> Result<(), SettingsFileError> {
        match (self.num_beams, self.do_sample) {
            (Some(beams @ 2..), Some(true)) => Err(wrong(
                &self.path,
                format!(
                    "num_beams {beams} with do_sample true asks for beam sampling, which is not supported; give num_beams {beams} for beam search, or give num_beams 1 for sampling"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses sampling where only beam search is supported.
    pub fn check_no_sampling(&self) -> Result<(), SettingsFileError> {
        match self.do_sample {
            Some(true) => Err(wrong(
                &self.path,
                "do_sample true asks for sampling, and only beam search is supported here; give num_beams 4 to use it instead".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses several texts for each input.
    pub fn check_single_sequence(&self) -> Result<(), SettingsFileError> {
        match self.num_return_sequences {
            Some(count @ 2..) => Err(wrong(
                &self.path,
                format!(
                    "num_return_sequences {count} asks for several texts, and only one is generated here; remove it"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses more texts than `beams` beams return.
    pub fn check_num_return_sequences(&self, beams: usize) -> Result<(), SettingsFileError> {
        match self.num_return_sequences.filter(|count| *count > beams) {
            Some(count) if beams > 1 => Err(wrong(
                &self.path,
                format!(
                    "num_return_sequences {count} asks for more texts than {beams} beams return; give num_beams {count}, or give num_return_sequences {beams}"
                ),
            )),
            Some(count) => Err(wrong(
                &self.path,
                format!(
                    "num_return_sequences {count} asks for several texts, which only beam search returns; give num_beams {count}, or give num_return_sequences 1"
                ),
            )),
            None => Ok(()),
        }
    }

    /// The maximum number of new tokens after a prompt (or decoder start) of `prompt_length` tokens, if the file sets one.
    pub fn max_new_tokens_after(
        &self,
        prompt_length: usize,
    ) -> Result<Option<usize>, SettingsFileError> {
        match (self.max_new_tokens, self.max_length) {
            (None, Some(max_length)) if max_length <= prompt_length => {
                let prompt = match prompt_length {
                    1 => "the first token".to_owned(),
                    _ => format!("a prompt of {prompt_length} tokens"),
                };
                Err(wrong(
                    &self.path,
                    format!(
                        "max_length {max_length} leaves no room after {prompt}; give max_new_tokens"
                    ),
                ))
            }
            (max_new_tokens, max_length) => {
                Ok(max_new_tokens.or(max_length.map(|it| it - prompt_length)))
            }
        }
    }

    fn refuse(&self, applies: Applies) -> Result<(), SettingsFileError> {
        let has_effect = |(key, when, is_disabled): &&Unsupported| {
            let value = self.others.get(*key).filter(|value| !value.is_null());
            *when == applies && value.is_some_and(|value| !is_disabled(value))
        };
        match UNSUPPORTED.iter().find(has_effect) {
            Some((key, ..)) => Err(wrong(
                &self.path,
                format!(
                    "{key} {} would change the texts and is not supported; remove it to generate without it",
                    self.others[*key]
                ),
            )),
            None => Ok(()),
        }
    }
}
