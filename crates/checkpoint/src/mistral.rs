//! Mistral in Hugging Face's format: Llama with a sliding window. Jiang et al. 2023.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{base_model, last_token_classifier, lm_head};
use super::llama_family::{self as family, LlamaFamily, LlamaFamilyConfig};
use super::sliding_windows::WindowRun;
use super::{Format, config_json::typed};
use attentive_model::ModelConfig;

pub(super) const FORMAT: Format = family::format(
    "mistral",
    read,
    write,
    &[family::SECTION],
    &[
        lm_head("MistralForCausalLM", family::LM_HEAD_ROWS),
        base_model("MistralModel"),
        last_token_classifier("MistralForSequenceClassification"),
    ],
);

/// The keys besides the family's.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct MistralConfig {
    /// How many positions a query attends to, including its own; null is full attention.
    sliding_window: Option<usize>,
}

/// Hugging Face leaves out keys with default values.
impl Default for MistralConfig {
    fn default() -> Self {
        Self {
            sliding_window: Some(4096),
        }
    }
}

fn defaults() -> LlamaFamilyConfig {
    LlamaFamilyConfig {
        max_position_embeddings: 4096 * 32,
        intermediate_size: 14336,
        num_key_value_heads: Some(8),
        ..LlamaFamilyConfig::default()
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let own: MistralConfig = typed(json, "")?;
    let hf = LlamaFamilyConfig::read(json, &defaults())?;
    LlamaFamily {
        bias: false,
        output_bias: false,
        head_norm: None,
        windows: WindowRun::uniform(hf.num_hidden_layers, own.sliding_window),
        feed_forward: hf.gated(false)?,
        config: hf,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = LlamaFamily::of(config)?;
    let own = MistralConfig {
        sliding_window: WindowRun::common(&family.windows)?,
    };
    family.json_with([json!(own)])
}
