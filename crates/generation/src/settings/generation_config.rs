//! Reads and writes `GenerationSettings` as generation_config.json.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{MAX_BEAMS, SPECIAL, one_or_more, token_ids};
use attentive_formats::json::typed;

/// The settings of a generation_config.json, under Hugging Face's names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// The file they were read from; empty if there is none.
    pub path: PathBuf,
    /// The first new token.
    pub forced_bos: Option<u32>,
    /// One of these is the last token of a text of maximum length.
    pub forced_eos: Vec<u32>,
    /// Maximum length with the prompt or the decoder's start token.
    pub max_length: Option<usize>,
    /// Maximum number of new tokens; takes precedence over `max_length`.
    pub max_new_tokens: Option<usize>,
    /// Minimum length with the prompt or the decoder's start token.
    pub min_length: Option<usize>,
    /// Minimum number of new tokens.
    pub min_new_tokens: Option<usize>,
    /// Beam width; one disables beam search.
    pub num_beams: Option<usize>,
    /// How many texts are returned for each input.
    pub num_return_sequences: Option<usize>,
    /// Exponent of the length by which a beam's score is divided.
    pub length_penalty: Option<f64>,
    /// When beam search stops.
    pub early_stopping: Option<EarlyStopping>,
    /// Whether beam scores are normalized again after the logits processors.
    pub renormalize_logits: Option<bool>,
    /// No n-gram of this size occurs twice; zero disables it.
    pub no_repeat_ngram_size: Option<usize>,
    /// No n-gram of this size is copied from the encoder's input; zero disables it.
    pub encoder_no_repeat_ngram_size: Option<usize>,
    /// Divides the logits of tokens that already occurred; one disables it.
    pub repetition_penalty: Option<f64>,
    /// Multiplies the logits of the tokens of the encoder's input; one disables it.
    pub encoder_repetition_penalty: Option<f64>,
    /// Token sequences that never occur.
    pub bad_words: Vec<Vec<u32>>,
    /// Tokens that never occur.
    pub suppress_tokens: Vec<u32>,
    /// Tokens suppressed at the first position.
    pub begin_suppress_tokens: Vec<u32>,
    /// Added to the logits that complete token sequences.
    pub sequence_bias: Vec<SequenceBias>,
    /// Raises the logit of the EOS token in long texts.
    pub exponential_decay_length_penalty: Option<ExponentialDecayLengthPenalty>,
    /// Whether tokens are sampled.
    pub do_sample: Option<bool>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Samples from this many of the most probable tokens; zero disables it.
    pub top_k: Option<usize>,
    /// Samples from the nucleus: the most probable tokens whose probabilities add up to this.
    pub top_p: Option<f64>,
    /// Samples from tokens with at least this fraction of the highest probability.
    pub min_p: Option<f64>,
    /// Samples from the most typical tokens whose probabilities add up to this.
    pub typical_p: Option<f64>,
    /// All other keys of the file, which are saved with the model.
    pub others: Map<String, Value>,
}

/// A bias on the logit of a sequence's last token wherever the tokens before it have just been generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(Vec<u32>, f64)", into = "(Vec<u32>, f64)")]
pub struct SequenceBias {
    /// The sequence.
    pub ids: Vec<u32>,
    /// Added to the logit.
    pub bias: f64,
}

impl From<(Vec<u32>, f64)> for SequenceBias {
    fn from((ids, bias): (Vec<u32>, f64)) -> Self {
        Self { ids, bias }
    }
}

impl From<SequenceBias> for (Vec<u32>, f64) {
    fn from(it: SequenceBias) -> Self {
        (it.ids, it.bias)
    }
}

/// Raises the logit of the EOS token by `|logit| * (decay_factor ^ (generated - start_index) - 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(usize, f64)", into = "(usize, f64)")]
pub struct ExponentialDecayLengthPenalty {
    /// Applies after this many generated tokens.
    pub start_index: usize,
    /// The base of the exponential.
    pub decay_factor: f64,
}

impl From<(usize, f64)> for ExponentialDecayLengthPenalty {
    fn from((start_index, decay_factor): (usize, f64)) -> Self {
        Self {
            start_index,
            decay_factor,
        }
    }
}

impl From<ExponentialDecayLengthPenalty> for (usize, f64) {
    fn from(it: ExponentialDecayLengthPenalty) -> Self {
        (it.start_index, it.decay_factor)
    }
}

/// When beam search stops before the maximum length: Hugging Face's `early_stopping`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// As soon as `num_beams` hypotheses are finished.
    True,
    /// When no running beam, scored at its present length, beats the worst finished hypothesis.
    #[default]
    False,
    /// When no running beam can beat it at any length.
    Never,
}

/// The keys of generation_config.json that have a field in [`GenerationSettings`].
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct GenerationConfigJson {
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
    sequence_bias: Option<Vec<SequenceBias>>,
    exponential_decay_length_penalty: Option<ExponentialDecayLengthPenalty>,
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    typical_p: Option<f64>,
}

/// Whether a key has a field in [`GenerationSettings`].
pub(super) fn is_known(key: &str) -> bool {
    json!(GenerationConfigJson::default()).get(key).is_some()
}

impl GenerationSettings {
    /// Reads the settings of a generation_config.json.
    pub fn read(config: &Value) -> Result<Self, String> {
        let forced_eos = token_ids(config, "forced_eos_token_id")?;
        let json: GenerationConfigJson = typed(config, "")?;
        let early_stopping = match &json.early_stopping {
            Value::Null => None,
            Value::Bool(true) => Some(EarlyStopping::True),
            Value::Bool(false) => Some(EarlyStopping::False),
            Value::String(text) if text == "never" => Some(EarlyStopping::Never),
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
        let others = config.as_object().into_iter().flatten();
        json.check_ranges()?;
        let settings = Self {
            path: PathBuf::new(),
            forced_bos: json.forced_bos_token_id,
            forced_eos,
            max_length: json.max_length,
            max_new_tokens: json.max_new_tokens,
            min_length: json.min_length,
            min_new_tokens: json.min_new_tokens,
            num_beams: json.num_beams,
            num_return_sequences: json.num_return_sequences,
            length_penalty: json.length_penalty,
            early_stopping,
            renormalize_logits: json.renormalize_logits,
            no_repeat_ngram_size: json.no_repeat_ngram_size,
            encoder_no_repeat_ngram_size: json.encoder_no_repeat_ngram_size,
            repetition_penalty: json.repetition_penalty,
            encoder_repetition_penalty: json.encoder_repetition_penalty,
            bad_words: json.bad_words_ids.unwrap_or_default(),
            suppress_tokens: json.suppress_tokens.unwrap_or_default(),
            begin_suppress_tokens: json.begin_suppress_tokens.unwrap_or_default(),
            sequence_bias: json.sequence_bias.unwrap_or_default(),
            exponential_decay_length_penalty: json.exponential_decay_length_penalty,
            do_sample: json.do_sample,
            temperature: json.temperature,
            top_k: json.top_k,
            top_p: json.top_p,
            min_p: json.min_p,
            typical_p: json.typical_p,
            others: others
                .filter(|(key, value)| is_other(key, value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        };
        if settings.do_sample == Some(true) {
            settings.check_sampling_ranges()?;
            check(
                "temperature",
                settings.temperature,
                |it| it > 0.0,
                "more than 0",
            )?;
        }
        Ok(settings)
    }

    /// Whether the sampling settings are in Hugging Face's ranges. transformers checks them only where it samples.
    pub(super) fn check_sampling_ranges(&self) -> Result<(), String> {
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

    /// Adds the settings to `config`.
    pub fn write(&self, config: &mut Value) {
        let known = GenerationConfigJson {
            forced_bos_token_id: self.forced_bos,
            forced_eos_token_id: one_or_more(&self.forced_eos),
            max_length: self.max_length,
            max_new_tokens: self.max_new_tokens,
            min_length: self.min_length,
            min_new_tokens: self.min_new_tokens,
            num_beams: self.num_beams,
            num_return_sequences: self.num_return_sequences,
            length_penalty: self.length_penalty,
            early_stopping: match self.early_stopping {
                None => Value::Null,
                Some(EarlyStopping::True) => json!(true),
                Some(EarlyStopping::False) => json!(false),
                Some(EarlyStopping::Never) => json!("never"),
            },
            renormalize_logits: self.renormalize_logits,
            no_repeat_ngram_size: self.no_repeat_ngram_size,
            encoder_no_repeat_ngram_size: self.encoder_no_repeat_ngram_size,
            repetition_penalty: self.repetition_penalty,
            encoder_repetition_penalty: self.encoder_repetition_penalty,
            bad_words_ids: non_empty(&self.bad_words),
            suppress_tokens: non_empty(&self.suppress_tokens),
            begin_suppress_tokens: non_empty(&self.begin_suppress_tokens),
            sequence_bias: non_empty(&self.sequence_bias),
            exponential_decay_length_penalty: self.exponential_decay_length_penalty,
            do_sample: self.do_sample,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
        };
        let known = serde_json::to_value(known).expect("settings serialize");
        let known = known.as_object().into_iter().flatten();
        let known = known.filter(|(_, value)| !value.is_null());
        let mut special = config.clone();
        special["forced_eos_token_id"] = one_or_more(&self.forced_eos);
        for (name, value) in self.others.iter().chain(known) {
            config[name] = value.clone();
        }
        // A single id is saved in a list if it was read from one.
        for name in SPECIAL.iter().chain(&["forced_eos_token_id"]) {
            let Some(list) = self.others.get(*name) else {
                continue;
            };
            let ids = token_ids(&json!({ *name: list }), name).unwrap_or_default();
            config[*name] = match special.get(*name).unwrap_or(&Value::Null) {
                id if *id == one_or_more(&ids) => list.clone(),
                other => other.clone(),
            };
        }
    }
}

impl GenerationConfigJson {
    /// Whether the settings that always apply are in Hugging Face's ranges.
    fn check_ranges(&self) -> Result<(), String> {
        let beams = self.num_beams.map(|it| it as f64);
        let max = self
            .num_beams
            .filter(|beams| *beams > 1)
            .unwrap_or(usize::MAX);
        let sequences = self.num_return_sequences.map(|it| it as f64);
        let positive = |it: f64| it > 0.0;
        check(
            "num_beams",
            beams,
            |it| (1.0..=MAX_BEAMS as f64).contains(&it),
            &format!("1 to {MAX_BEAMS}"),
        )?;
        check(
            "num_return_sequences",
            sequences,
            positive,
            "1 to the number of beams",
        )?;
        check(
            "num_return_sequences",
            sequences,
            |it| it <= max as f64,
            &format!("1 to {max}, the value of num_beams"),
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
        let empty_bad_word = (self.bad_words_ids.iter().flatten()).any(Vec::is_empty);
        let empty_bias = (self.sequence_bias.iter().flatten()).any(|it| it.ids.is_empty());
        for (name, is_empty) in [
            ("bad_words_ids", empty_bad_word),
            ("sequence_bias", empty_bias),
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

/// An error if there is a value and it is out of range.
fn check(
    name: &str,
    value: Option<f64>,
    fits: impl Fn(f64) -> bool,
    range: &str,
) -> Result<(), String> {
    match value.filter(|it| !fits(*it)) {
        Some(value) => Err(format!("{name}: {value} is out of range; use {range}")),
        None => Ok(()),
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Whether this is a list of at most one id, which is otherwise written without a list.
fn is_short_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.len() < 2)
}

fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    Some(list.to_vec()).filter(|list| !list.is_empty())
}
