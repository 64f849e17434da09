//! Llama in Hugging Face's format. Touvron et al. 2023.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{base_model, last_token_classifier, lm_head};
use super::llama_family::{self as family, LlamaFamily, LlamaFamilyConfig};
use super::sliding_windows::WindowRun;
use super::{Format, config_json::typed};
use attentive_model::ModelConfig;
use attentive_model::feed_forward::FeedForwardConfig;

pub(super) const FORMAT: Format = family::format(
    "llama",
    read,
    write,
    &[family::SECTION],
    &[
        lm_head("LlamaForCausalLM", family::LM_HEAD_ROWS),
        base_model("LlamaModel"),
        last_token_classifier("LlamaForSequenceClassification"),
    ],
);

/// The keys besides the family's.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct LlamaConfig {
    attention_bias: bool,
    mlp_bias: bool,
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let own: LlamaConfig = typed(json, "")?;
    let hf = LlamaFamilyConfig::read(json, &LlamaFamilyConfig::default())?;
    LlamaFamily {
        bias: own.attention_bias,
        output_bias: own.attention_bias,
        head_norm: None,
        windows: WindowRun::uniform(hf.num_hidden_layers, None),
        feed_forward: hf.gated(own.mlp_bias)?,
        config: hf,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = LlamaFamily::of(config)?;
    let FeedForwardConfig::Gated(feed_forward) = &family.feed_forward else {
        return None;
    };
    let own = LlamaConfig {
        attention_bias: family.bias,
        mlp_bias: feed_forward.bias,
    };
    family.json_with([json!(own)])
}
