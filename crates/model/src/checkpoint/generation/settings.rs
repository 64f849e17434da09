//! How texts are to be made, in our words and in those of generation_config.json.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{MOST_BEAMS, SPECIAL, ids, one_or_more};
use crate::checkpoint::json::typed;

/// How texts are to be made, as far as a folder says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// The file that says it; empty if none does.
    pub path: PathBuf,
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
    /// How many texts are wanted.
    pub returned: Option<usize>,
    /// The power of its length by which the score of a sequence is divided.
    pub length_penalty: Option<f64>,
    /// When a beam search ends.
    pub search_end: Option<SearchEnd>,
    /// Whether what rules take from a token's probability goes to the others, in the scores of a search.
    pub renormalized: Option<bool>,
    /// No so many tokens in a row occur twice; zero allows all.
    pub no_repeat: Option<usize>,
    /// No so many tokens in a row are those of the source; zero allows all.
    pub no_repeat_of_source: Option<usize>,
    /// Divides the scores of tokens that already occurred; one leaves them.
    pub repetition_penalty: Option<f64>,
    /// Multiplies the scores of the source's tokens; one leaves them.
    pub source_boost: Option<f64>,
    /// Tokens, or several in a row, that never occur.
    pub forbidden: Vec<Vec<u32>>,
    /// Tokens that never occur.
    pub suppressed: Vec<u32>,
    /// Tokens that do not come first.
    pub suppressed_first: Vec<u32>,
    /// What is added to the scores of tokens, or of several in a row.
    pub biases: Vec<Bias>,
    /// How the end becomes likelier in long texts.
    pub end_pull: Option<EndPull>,
    /// Whether tokens are drawn at random.
    pub drawn: Option<bool>,
    /// Divides the scores before a token is drawn.
    pub temperature: Option<f64>,
    /// Tokens are drawn among so many; zero for all.
    pub top_k: Option<usize>,
    /// Tokens are drawn among the likeliest that together reach this probability.
    pub top_p: Option<f64>,
    /// Tokens are drawn among those that have this part of the likeliest's probability.
    pub min_p: Option<f64>,
    /// Tokens are drawn among the most typical that together reach this probability.
    pub typical_p: Option<f64>,
    /// What else the file says, in its words; kept when the model is saved.
    pub others: Map<String, Value>,
}

/// What is added to the score of the last of some tokens where the others stand before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(Vec<u32>, f64)", into = "(Vec<u32>, f64)")]
pub struct Bias {
    /// The tokens, one or several in a row.
    pub ids: Vec<u32>,
    /// What is added.
    pub bias: f64,
}

impl From<(Vec<u32>, f64)> for Bias {
    fn from((ids, bias): (Vec<u32>, f64)) -> Self {
        Self { ids, bias }
    }
}

impl From<Bias> for (Vec<u32>, f64) {
    fn from(it: Bias) -> Self {
        (it.ids, it.bias)
    }
}

/// The end becomes likelier with each token: its score grows by its size times `factor` to the power of the tokens made after
/// the first `after`, less one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(usize, f64)", into = "(usize, f64)")]
pub struct EndPull {
    /// So many tokens are made before it begins.
    pub after: usize,
    /// What is raised to a power.
    pub factor: f64,
}

impl From<(usize, f64)> for EndPull {
    fn from((after, factor): (usize, f64)) -> Self {
        Self { after, factor }
    }
}

impl From<EndPull> for (usize, f64) {
    fn from(it: EndPull) -> Self {
        (it.after, it.factor)
    }
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
    num_return_sequences: Option<usize>,
    length_penalty: Option<f64>,
    early_stopping: Value,
    renormalize_logits: Option<bool>,
    no_repeat_ngram_size: Option<usize>,
    encoder_no_repeat_ngram_size: Option<usize>,
    repetition_penalty: Option<f64>,
    encoder_repetition_penalty: Option<f64>,
    bad_words_ids: Option<Vec<Vec<u32>>>,
    suppress_tokens: Option<Vec<u32>>,
    begin_suppress_tokens: Option<Vec<u32>>,
    sequence_bias: Option<Vec<Bias>>,
    exponential_decay_length_penalty: Option<EndPull>,
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    typical_p: Option<f64>,
}

/// Whether a key is one of those that have a field in [`GenerationSettings`].
pub(super) fn is_known(key: &str) -> bool {
    json!(Words::default()).get(key).is_some()
}

impl GenerationSettings {
    /// The settings that `words` names.
    pub(in crate::checkpoint) fn read(said: &Value) -> Result<Self, String> {
        let last = ids(said, "forced_eos_token_id")?;
        let words: Words = typed(said, "")?;
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
        let is_other = |key: &str, value: &Value| match SPECIAL.contains(&key)
            || key == "forced_eos_token_id"
        {
            true => is_short_list(value),
            false => value.is_null() || is_empty_list(value) || !is_known(key),
        };
        let others = said.as_object().into_iter().flatten();
        words.check_ranges()?;
        let settings = Self {
            path: PathBuf::new(),
            first: words.forced_bos_token_id,
            last,
            longest: words.max_length,
            most_tokens: words.max_new_tokens,
            shortest: words.min_length,
            fewest_tokens: words.min_new_tokens,
            beams: words.num_beams,
            returned: words.num_return_sequences,
            length_penalty: words.length_penalty,
            search_end,
            renormalized: words.renormalize_logits,
            no_repeat: words.no_repeat_ngram_size,
            no_repeat_of_source: words.encoder_no_repeat_ngram_size,
            repetition_penalty: words.repetition_penalty,
            source_boost: words.encoder_repetition_penalty,
            forbidden: words.bad_words_ids.unwrap_or_default(),
            suppressed: words.suppress_tokens.unwrap_or_default(),
            suppressed_first: words.begin_suppress_tokens.unwrap_or_default(),
            biases: words.sequence_bias.unwrap_or_default(),
            end_pull: words.exponential_decay_length_penalty,
            drawn: words.do_sample,
            temperature: words.temperature,
            top_k: words.top_k,
            top_p: words.top_p,
            min_p: words.min_p,
            typical_p: words.typical_p,
            others: others
                .filter(|(key, value)| is_other(key, value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        };
        if settings.drawn == Some(true) {
            settings.check_drawing_ranges()?;
            check(
                "temperature",
                settings.temperature,
                |it| it > 0.0,
                "more than 0",
            )?;
        }
        Ok(settings)
    }

    /// Whether the numbers of drawing are in the ranges that Hugging Face has for them. It looks only where tokens are drawn.
    pub(super) fn check_drawing_ranges(&self) -> Result<(), String> {
        check("top_p", self.top_p, |it| it >= 0.0, "0 to 1")?;
        check(
            "min_p",
            self.min_p,
            |it| (0.0..=1.0).contains(&it),
            "0 to 1",
        )?;
        check(
            "typical_p",
            self.typical_p,
            |it| it > 0.0,
            "more than 0 and at most 1",
        )
    }

    /// Adds the settings to `words`.
    pub(in crate::checkpoint) fn write(&self, words: &mut Value) {
        let ours = Words {
            forced_bos_token_id: self.first,
            forced_eos_token_id: one_or_more(&self.last),
            max_length: self.longest,
            max_new_tokens: self.most_tokens,
            min_length: self.shortest,
            min_new_tokens: self.fewest_tokens,
            num_beams: self.beams,
            num_return_sequences: self.returned,
            length_penalty: self.length_penalty,
            early_stopping: match self.search_end {
                None => Value::Null,
                Some(SearchEnd::Full) => json!(true),
                Some(SearchEnd::Unlikely) => json!(false),
                Some(SearchEnd::Impossible) => json!("never"),
            },
            renormalize_logits: self.renormalized,
            no_repeat_ngram_size: self.no_repeat,
            encoder_no_repeat_ngram_size: self.no_repeat_of_source,
            repetition_penalty: self.repetition_penalty,
            encoder_repetition_penalty: self.source_boost,
            bad_words_ids: some(&self.forbidden),
            suppress_tokens: some(&self.suppressed),
            begin_suppress_tokens: some(&self.suppressed_first),
            sequence_bias: some(&self.biases),
            exponential_decay_length_penalty: self.end_pull,
            do_sample: self.drawn,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
        };
        let ours = serde_json::to_value(ours).expect("settings serialize");
        let ours = ours.as_object().into_iter().flatten();
        let ours = ours.filter(|(_, value)| !value.is_null());
        let mut saved = words.clone();
        saved["forced_eos_token_id"] = one_or_more(&self.last);
        for (name, value) in self.others.iter().chain(ours) {
            words[name] = value.clone();
        }
        // An id in a list is the same as one without, and stays as it was said.
        for name in SPECIAL.iter().chain(&["forced_eos_token_id"]) {
            let Some(list) = self.others.get(*name) else {
                continue;
            };
            let ids = ids(&json!({ *name: list }), name).unwrap_or_default();
            words[*name] = match saved.get(*name).unwrap_or(&Value::Null) {
                id if *id == one_or_more(&ids) => list.clone(),
                other => other.clone(),
            };
        }
    }
}

impl Words {
    /// Whether all numbers are in the ranges that Hugging Face has for them, however tokens are chosen.
    fn check_ranges(&self) -> Result<(), String> {
        let beams = self.num_beams.map(|it| it as f64);
        let most = self
            .num_beams
            .filter(|beams| *beams > 1)
            .unwrap_or(usize::MAX);
        let returned = self.num_return_sequences.map(|it| it as f64);
        let positive = |it: f64| it > 0.0;
        check(
            "num_beams",
            beams,
            |it| (1.0..=MOST_BEAMS as f64).contains(&it),
            &format!("1 to {MOST_BEAMS}"),
        )?;
        check(
            "num_return_sequences",
            returned,
            positive,
            "1 to the number of beams",
        )?;
        check(
            "num_return_sequences",
            returned,
            |it| it <= most as f64,
            &format!("1 to {most}, which num_beams is"),
        )?;
        check(
            "max_new_tokens",
            self.max_new_tokens.map(|it| it as f64),
            positive,
            "1 or more",
        )?;
        for (name, penalty) in [
            ("repetition_penalty", self.repetition_penalty),
            (
                "encoder_repetition_penalty",
                self.encoder_repetition_penalty,
            ),
        ] {
            check(name, penalty, positive, "more than 0")?;
        }
        let forbids_nothing = (self.bad_words_ids.iter().flatten()).any(Vec::is_empty);
        let biases_nothing = (self.sequence_bias.iter().flatten()).any(|it| it.ids.is_empty());
        for (name, is_empty) in [
            ("bad_words_ids", forbids_nothing),
            ("sequence_bias", biases_nothing),
        ] {
            if is_empty {
                return Err(format!(
                    "{name}: one of its lists of tokens is empty; name tokens or remove it"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a number, where there is one, fits.
fn check(
    name: &str,
    number: Option<f64>,
    fits: impl Fn(f64) -> bool,
    range: &str,
) -> Result<(), String> {
    match number.filter(|it| !fits(*it)) {
        Some(number) => Err(format!("{name}: {number} is out of range; use {range}")),
        None => Ok(()),
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Whether this is a list of no id or of one, which are written without a list otherwise.
fn is_short_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.len() < 2)
}

fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    Some(list.to_vec()).filter(|list| !list.is_empty())
}
