//! Qwen2 in Hugging Face's format: Llama with query, key and value biases. Yang et al. 2024.

use serde_json::{Value, json};

use super::heads::{base_model, last_token_classifier, lm_head};
use super::llama_family::{self as family, LlamaFamily, LlamaFamilyConfig};
use super::sliding_windows::QwenWindowConfig;
use super::{Format, config_json::typed};
use attentive_model::ModelConfig;

pub(super) const FORMAT: Format = family::format(
    "qwen2",
    read,
    write,
    &[family::SECTION],
    &[
        lm_head("Qwen2ForCausalLM", family::LM_HEAD_ROWS),
        base_model("Qwen2Model"),
        last_token_classifier("Qwen2ForSequenceClassification"),
    ],
);

fn defaults() -> LlamaFamilyConfig {
    LlamaFamilyConfig {
        vocab_size: 151_936,
        max_position_embeddings: 32768,
        intermediate_size: 22016,
        num_key_value_heads: Some(32),
        ..LlamaFamilyConfig::default()
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let windows: QwenWindowConfig = typed(json, "")?;
    let hf = LlamaFamilyConfig::read(json, &defaults())?;
    LlamaFamily {
        bias: true,
        output_bias: false,
        head_norm: None,
        windows: windows.runs(hf.num_hidden_layers)?,
        feed_forward: hf.gated(false)?,
        config: hf,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = LlamaFamily::of(config)?;
    family.json_with([json!(QwenWindowConfig::of(&family.windows)?)])
}
