//! Rotary positions as Hugging Face's configs write them: `rope_parameters` since transformers 5, `rope_theta` and
//! `rope_scaling` before.

use serde::Deserialize;
use serde_json::{Value, json};

use super::json::typed;
use crate::{Llama3Scaling, RotaryConfig, RotaryScaling, YarnScaling};

/// The keys of a config.json that rotary positions depend on.
pub struct RopeWords<'w> {
    /// Before transformers 5.
    pub rope_theta: Option<f64>,
    /// Before transformers 5.
    pub rope_scaling: &'w Value,
    /// Before transformers 5, which moves it into the table of the rest.
    pub partial_rotary_factor: Option<f64>,
    /// Since transformers 5.
    pub rope_parameters: &'w Value,
    /// What the scalings fall back to for the length that a model was trained on.
    pub max_position_embeddings: usize,
}

/// All keys that a scaling may have.
#[derive(Deserialize)]
struct Scaling {
    factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    truncate: Option<bool>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
}

impl RopeWords<'_> {
    /// Our settings from either style.
    pub fn read(&self) -> Result<RotaryConfig, String> {
        if let Some(partial) = self.partial_rotary_factor.filter(|it| *it != 1.0) {
            return Err(format!(
                "partial_rotary_factor {partial} is not supported; it must be 1"
            ));
        }
        let new_style = self.rope_parameters["rope_theta"].as_f64();
        let theta = new_style.or(self.rope_theta).unwrap_or(10_000.0);
        let old = self.scaling("rope_scaling", self.rope_scaling)?;
        let new = self.scaling("rope_parameters", self.rope_parameters)?;
        let scaling = match (old, new) {
            (Some(old), Some(new)) if old != new => {
                return Err("rope_scaling and rope_parameters contradict each other".to_owned());
            }
            (old, new) => new.or(old),
        };
        Ok(RotaryConfig { theta, scaling })
    }

    fn scaling(&self, name: &str, style: &Value) -> Result<Option<RotaryScaling>, String> {
        if !style.is_null() && !style.is_object() {
            return Err(format!(
                "{name}: {style} is not a table; use one, or leave it out"
            ));
        }
        let wrong =
            |key: &str, needed: &str| Err(format!("{name}.{key}: {} is not {needed}", style[key]));
        if !style["rope_theta"].is_null() && !style["rope_theta"].is_number() {
            return wrong("rope_theta", "a number");
        }
        for key in ["rope_type", "type"] {
            if !style[key].is_null() && !style[key].is_string() {
                return wrong(key, "a word");
            }
        }
        let partial = style["partial_rotary_factor"].as_f64().unwrap_or(1.0);
        if partial != 1.0 {
            return Err(format!(
                "{name}.partial_rotary_factor {partial} is not supported; it must be 1"
            ));
        }
        let kind = style["rope_type"].as_str().or(style["type"].as_str());
        let Some(kind) = kind else {
            return match &style["factor"] {
                Value::Null => Ok(None),
                _ => Err(format!("{name} has a factor and no rope_type; {SUPPORTED}")),
            };
        };
        if kind == "default" {
            return Ok(None);
        }
        let words: Scaling = typed(style, name)?;
        let length = self.max_position_embeddings;
        let original_length = words.original_max_position_embeddings.unwrap_or(length);
        let factor = words
            .factor
            .ok_or_else(|| format!("{name}: the key `factor` is missing"));
        Ok(Some(match kind {
            "linear" => RotaryScaling::Linear { factor: factor? },
            // The length from which the base grows is always the config's own.
            "dynamic" => RotaryScaling::Ntk {
                factor: factor?,
                original_length: length,
            },
            "yarn" => RotaryScaling::Yarn(words.yarn(original_length, length)),
            "llama3" => RotaryScaling::Llama3(Llama3Scaling {
                factor: factor?,
                original_length,
                low_frequency_factor: words.low_freq_factor.unwrap_or(1.0),
                high_frequency_factor: words.high_freq_factor.unwrap_or(4.0),
            }),
            other => {
                return Err(format!(
                    "{name} of type \"{other}\" is not supported; {SUPPORTED}"
                ));
            }
        }))
    }
}

const SUPPORTED: &str = "supported are default, linear, dynamic, yarn, llama3";

impl Scaling {
    fn yarn(&self, original_length: usize, length: usize) -> YarnScaling {
        let stretch = length as f64 / original_length as f64;
        let factor = self.factor.unwrap_or(stretch);
        // DeepSeek's way to say the factor of the scores; a zero counts as absent.
        let said = |it: Option<f64>| it.filter(|it| *it != 0.0);
        let magnitude = |scale: f64| 0.1 * scale * factor.max(1.0).ln() + 1.0;
        let scales = said(self.mscale).zip(said(self.mscale_all_dim));
        let of_scales = scales.map(|(one, all)| magnitude(one) / magnitude(all));
        YarnScaling {
            factor,
            original_length,
            beta_fast: said(self.beta_fast).unwrap_or(32.0),
            beta_slow: said(self.beta_slow).unwrap_or(1.0),
            attention_factor: self.attention_factor.or(of_scales),
            truncate: self.truncate.unwrap_or(true),
        }
    }
}

/// The scaling in both styles' words, with its type.
pub fn scaling_words(rotary: &RotaryConfig) -> Value {
    match &rotary.scaling {
        None => json!({ "rope_type": "default" }),
        Some(RotaryScaling::Linear { factor }) => {
            json!({ "rope_type": "linear", "factor": factor })
        }
        Some(RotaryScaling::Ntk { factor, .. }) => {
            json!({ "rope_type": "dynamic", "factor": factor })
        }
        Some(RotaryScaling::Yarn(yarn)) => {
            let mut words = json!({
                "rope_type": "yarn",
                "factor": yarn.factor,
                "original_max_position_embeddings": yarn.original_length,
                "beta_fast": yarn.beta_fast,
                "beta_slow": yarn.beta_slow,
                "truncate": yarn.truncate,
            });
            if let Some(factor) = yarn.attention_factor {
                words["attention_factor"] = json!(factor);
            }
            words
        }
        Some(RotaryScaling::Llama3(llama)) => json!({
            "rope_type": "llama3",
            "factor": llama.factor,
            "original_max_position_embeddings": llama.original_length,
            "low_freq_factor": llama.low_frequency_factor,
            "high_freq_factor": llama.high_frequency_factor,
        }),
    }
}
