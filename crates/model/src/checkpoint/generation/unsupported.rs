//! Settings of Hugging Face that change texts and that nothing here can follow. Who makes texts refuses them; who does not,
//! and who saves the model, carries them along.

use serde_json::{Map, Value};

use super::settings::is_known;
use super::{GenerationSettings, wrong};
use crate::checkpoint::CheckpointError;

/// When a setting changes a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matters {
    Always,
    /// Where tokens are drawn at random.
    Drawing,
}

/// A key, when it matters, and which of its values leave texts as they are; a missing one does.
type Unsupported = (&'static str, Matters, fn(&Value) -> bool);

const UNSUPPORTED: [Unsupported; 15] = [
    ("guidance_scale", Matters::Always, |it| is(it, 1.0)),
    ("watermarking_config", Matters::Always, |_| false),
    ("penalty_alpha", Matters::Always, |it| is(it, 0.0)),
    ("dola_layers", Matters::Always, |_| false),
    ("num_beam_groups", Matters::Always, |it| is(it, 1.0)),
    ("constraints", Matters::Always, |_| false),
    ("force_words_ids", Matters::Always, |_| false),
    ("forced_decoder_ids", Matters::Always, is_empty),
    ("stop_strings", Matters::Always, is_empty),
    ("max_time", Matters::Always, |_| false),
    ("token_healing", Matters::Always, is_false),
    ("remove_invalid_values", Matters::Always, is_false),
    ("top_h", Matters::Drawing, |_| false),
    ("epsilon_cutoff", Matters::Drawing, |it| is(it, 0.0)),
    ("eta_cutoff", Matters::Drawing, |it| is(it, 0.0)),
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

/// The words of config.json that are about making texts.
pub(super) fn of_generation(words: &Value) -> Value {
    let is_of_generation =
        |key: &str| is_known(key) || UNSUPPORTED.iter().any(|(name, ..)| *name == key);
    let words = words.as_object().into_iter().flatten();
    let words: Map<String, Value> = words
        .filter(|(key, value)| is_of_generation(key) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Value::Object(words)
}

impl GenerationSettings {
    /// Refuses settings that would make other texts than are made here, however tokens are chosen.
    pub fn check(&self) -> Result<(), CheckpointError> {
        self.refuse(Matters::Always)
    }

    /// Refuses settings that would draw other tokens than are drawn here.
    pub fn check_drawing(&self) -> Result<(), CheckpointError> {
        self.refuse(Matters::Drawing)
    }

    fn refuse(&self, matters: Matters) -> Result<(), CheckpointError> {
        let has_effect = |(key, when, is_harmless): &&Unsupported| {
            let value = self.others.get(*key).filter(|value| !value.is_null());
            *when == matters && value.is_some_and(|value| !is_harmless(value))
        };
        match UNSUPPORTED.iter().find(has_effect) {
            Some((key, ..)) => Err(wrong(
                &self.path,
                format!(
                    "{key} {} would change the texts and is not supported; remove it to make texts without it",
                    self.others[*key]
                ),
            )),
            None => Ok(()),
        }
    }
}
