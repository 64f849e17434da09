//! Rotary positions in Hugging Face's config.json: `rope_parameters` since transformers 5, `rope_theta` and `rope_scaling`
//! before.

use serde::Deserialize;
use serde_json::{Value, json};

use super::config_json::typed;
use attentive_model::positions::{Llama3Scaling, RotaryConfig, RotaryScaling, YarnScaling};

/// The keys of config.json that rotary positions depend on.
pub struct RopeKeys<'a> {
    /// Before transformers 5.
    pub rope_theta: Option<f64>,
    /// Before transformers 5.
    pub rope_scaling: &'a Value,
    /// Before transformers 5, which moves it into `rope_parameters`.
    pub partial_rotary_factor: Option<f64>,
    /// Since transformers 5.
    pub rope_parameters: &'a Value,
    /// The default of `original_max_position_embeddings`.
    pub max_position_embeddings: usize,
}

/// The keys of every `rope_type`.
#[derive(Deserialize)]
struct RopeScalingKeys {
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

impl RopeKeys<'_> {
    /// Reads the keys of either transformers version.
    pub fn read(&self) -> Result<RotaryConfig, String> {
        if let Some(partial) = self.partial_rotary_factor.filter(|it| *it != 1.0) {
            return Err(format!(
                "partial_rotary_factor {partial} is not supported; it must be 1"
            ));
        }
        let new_theta = self.rope_parameters["rope_theta"].as_f64();
        let theta = new_theta.or(self.rope_theta).unwrap_or(10_000.0);
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

    fn scaling(&self, name: &str, value: &Value) -> Result<Option<RotaryScaling>, String> {
        if !value.is_null() && !value.is_object() {
            return Err(format!(
                "{name}: {value} is not an object; use one, or leave it out"
            ));
        }
        let wrong_type = |key: &str, expected: &str| {
            Err(format!("{name}.{key}: {} is not {expected}", value[key]))
        };
        if !value["rope_theta"].is_null() && !value["rope_theta"].is_number() {
            return wrong_type("rope_theta", "a number");
        }
        for key in ["rope_type", "type"] {
            if !value[key].is_null() && !value[key].is_string() {
                return wrong_type(key, "a string");
            }
        }
        let partial = value["partial_rotary_factor"].as_f64().unwrap_or(1.0);
        if partial != 1.0 {
            return Err(format!(
                "{name}.partial_rotary_factor {partial} is not supported; it must be 1"
            ));
        }
        let kind = value["rope_type"].as_str().or(value["type"].as_str());
        let Some(kind) = kind else {
            return match &value["factor"] {
                Value::Null => Ok(None),
                _ => Err(format!("{name} has a factor and no rope_type; {SUPPORTED}")),
            };
        };
        if kind == "default" {
            return Ok(None);
        }
        let keys: RopeScalingKeys = typed(value, name)?;
        let length = self.max_position_embeddings;
        let original_length = keys.original_max_position_embeddings.unwrap_or(length);
        let factor = keys
            .factor
            .ok_or_else(|| format!("{name}: the key `factor` is missing"));
        Ok(Some(match kind {
            "linear" => RotaryScaling::Linear { factor: factor? },
            // Dynamic NTK ignores `original_max_position_embeddings`, as in transformers.
            "dynamic" => RotaryScaling::Ntk {
                factor: factor?,
                original_length: length,
            },
            "yarn" => RotaryScaling::Yarn(keys.yarn(original_length, length)),
            "llama3" => RotaryScaling::Llama3(Llama3Scaling {
                factor: factor?,
                original_length,
                low_frequency_factor: keys.low_freq_factor.unwrap_or(1.0),
                high_frequency_factor: keys.high_freq_factor.unwrap_or(4.0),
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

impl RopeScalingKeys {
    fn yarn(&self, original_length: usize, length: usize) -> YarnScaling {
        let stretch = length as f64 / original_length as f64;
        let factor = self.factor.unwrap_or(stretch);
        // DeepSeek configs give the attention factor as the ratio of two scales; as in transformers, zero counts as absent.
        let given = |it: Option<f64>| it.filter(|it| *it != 0.0);
        let magnitude = |scale: f64| 0.1 * scale * factor.max(1.0).ln() + 1.0;
        let scales = given(self.mscale).zip(given(self.mscale_all_dim));
        let from_scales = scales.map(|(one, all)| magnitude(one) / magnitude(all));
        YarnScaling {
            factor,
            original_length,
            beta_fast: given(self.beta_fast).unwrap_or(32.0),
            beta_slow: given(self.beta_slow).unwrap_or(1.0),
            attention_factor: self.attention_factor.or(from_scales),
            truncate: self.truncate.unwrap_or(true),
        }
    }
}

/// The scaling with its `rope_type`, for `rope_scaling` or `rope_parameters`.
pub fn scaling_json(rotary: &RotaryConfig) -> Value {
    match &rotary.scaling {
        None => json!({ "rope_type": "default" }),
        Some(RotaryScaling::Linear { factor }) => {
            json!({ "rope_type": "linear", "factor": factor })
        }
        Some(RotaryScaling::Ntk { factor, .. }) => {
            json!({ "rope_type": "dynamic", "factor": factor })
        }
        Some(RotaryScaling::Yarn(yarn)) => {
            let mut json = json!({
                "rope_type": "yarn",
                "factor": yarn.factor,
                "original_max_position_embeddings": yarn.original_length,
                "beta_fast": yarn.beta_fast,
                "beta_slow": yarn.beta_slow,
                "truncate": yarn.truncate,
            });
            if let Some(factor) = yarn.attention_factor {
                json["attention_factor"] = json!(factor);
            }
            json
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
