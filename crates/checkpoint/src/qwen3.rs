//! Qwen3 in Hugging Face's format: Llama with a norm of each head's queries and keys. Yang et al. 2025.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{base_model, last_token_classifier, lm_head};
use super::llama_family::{self as family, LlamaFamily, LlamaFamilyConfig};
use super::name_table::{TensorRow, Transform::Same};
use super::sliding_windows::QwenWindowConfig;
use super::{Format, config_json::typed};
use attentive_model::ModelConfig;

pub(super) const FORMAT: Format = family::format(
    "qwen3",
    read,
    write,
    &[family::SECTION, family::section(QK_NORM_ROWS)],
    &[
        lm_head("Qwen3ForCausalLM", family::LM_HEAD_ROWS),
        base_model("Qwen3Model"),
        last_token_classifier("Qwen3ForSequenceClassification"),
    ],
);

#[rustfmt::skip] // Keeps the columns aligned.
const QK_NORM_ROWS: &[TensorRow] = &[
    ("blocks.{layer}.attention.body.query_norm.weight", "layers.{layer}.self_attn.q_norm.weight", Same),
    ("blocks.{layer}.attention.body.key_norm.weight",   "layers.{layer}.self_attn.k_norm.weight", Same),
];

/// The keys besides the family's and those of windows.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Qwen3Config {
    attention_bias: bool,
}

fn defaults() -> LlamaFamilyConfig {
    LlamaFamilyConfig {
        vocab_size: 151_936,
        max_position_embeddings: 32768,
        intermediate_size: 22016,
        num_key_value_heads: Some(32),
        head_dim: Some(128),
        ..LlamaFamilyConfig::default()
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let own: Qwen3Config = typed(json, "")?;
    let windows: QwenWindowConfig = typed(json, "")?;
    let hf = LlamaFamilyConfig::read(json, &defaults())?;
    LlamaFamily {
        bias: own.attention_bias,
        output_bias: own.attention_bias,
        head_norm: Some(hf.norm()),
        windows: windows.runs(hf.num_hidden_layers)?,
        feed_forward: hf.gated(false)?,
        config: hf,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = LlamaFamily::of(config)?;
    let own = Qwen3Config {
        attention_bias: family.bias,
    };
    family.json_with([json!(own), json!(QwenWindowConfig::of(&family.windows)?)])
}
