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
        self.refuse(Matters::Drawing)?;
        self.check_drawing_ranges()
            .map_err(|problem| wrong(&self.path, problem))
    }

    /// Refuses a search whose tokens are drawn at random.
    pub fn check_search_or_drawing(&self) -> Result<(), CheckpointError> {
        match (self.beams, self.drawn) {
            (Some(beams @ 2..), Some(true)) => Err(wrong(
                &self.path,
                format!(
                    "num_beams {beams} with do_sample true asks for a search that draws at random, which is not supported; search with {beams} beams (--beams {beams}) or draw with one (--beams 1)"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to draw tokens where texts are searched for.
    pub fn check_no_drawing(&self) -> Result<(), CheckpointError> {
        match self.drawn {
            Some(true) => Err(wrong(
                &self.path,
                "do_sample true asks for texts drawn at random, and these are searched for; say how many beams (--beams 4) to search all the same".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to make several texts where there is one for each prompt or source.
    pub fn check_one_text(&self) -> Result<(), CheckpointError> {
        match self.returned {
            Some(count @ 2..) => Err(wrong(
                &self.path,
                format!(
                    "num_return_sequences {count} asks for several texts, and here one is made; remove it"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to make more texts than a search with so many beams finds; one is no search.
    pub fn check_returned(&self, beams: usize) -> Result<(), CheckpointError> {
        match self.returned.filter(|count| *count > beams) {
            Some(count) if beams > 1 => Err(wrong(
                &self.path,
                format!(
                    "num_return_sequences {count} asks for more texts than {beams} beams find; search with {count} beams (--beams {count}) or ask for fewer texts (--return {beams})"
                ),
            )),
            Some(count) => Err(wrong(
                &self.path,
                format!(
                    "num_return_sequences {count} asks for several texts, which only a search finds; search with {count} beams (--beams {count}) or ask for one text (--return 1)"
                ),
            )),
            None => Ok(()),
        }
    }

    /// The most tokens to make after `before` others, if the file says so.
    pub fn most_tokens(&self, before: usize) -> Result<Option<usize>, CheckpointError> {
        match (self.most_tokens, self.longest) {
            (None, Some(longest)) if longest <= before => {
                let after = match before {
                    1 => "the one token that is there before".to_owned(),
                    _ => format!("a prompt of {before} tokens"),
                };
                Err(wrong(
                    &self.path,
                    format!(
                        "max_length {longest} leaves no room after {after}; say how many tokens to make (--max-tokens)"
                    ),
                ))
            }
            (most, longest) => Ok(most.or(longest.map(|it| it - before))),
        }
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
