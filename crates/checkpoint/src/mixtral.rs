//! Mixtral in Hugging Face's format: Mistral with experts. Jiang et al. 2024.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::activation;
use super::heads::{base_model, last_token_classifier, lm_head};
use super::llama_family::{self as family, LlamaFamily, LlamaFamilyConfig};
use super::name_table::{TensorRow, Transform::Same};
use super::sliding_windows::WindowRun;
use super::{Format, config_json::typed};
use attentive_model::ModelConfig;
use attentive_model::feed_forward::{
    ExpertForm, ExpertWeighting, ExpertsConfig, FeedForwardConfig,
};

pub(super) const FORMAT: Format = family::format(
    "mixtral",
    read,
    write,
    &[family::SECTION, family::section(EXPERT_ROWS)],
    &[
        lm_head("MixtralForCausalLM", family::LM_HEAD_ROWS),
        base_model("MixtralModel"),
        last_token_classifier("MixtralForSequenceClassification"),
    ],
);

#[rustfmt::skip] // Keeps the columns aligned.
const EXPERT_ROWS: &[TensorRow] = &[
    ("blocks.{layer}.feed_forward.body.router.weight",                "layers.{layer}.block_sparse_moe.gate.weight",                Same),
    ("blocks.{layer}.feed_forward.body.experts.{expert}.gate.weight", "layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight", Same),
    ("blocks.{layer}.feed_forward.body.experts.{expert}.down.weight", "layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight", Same),
    ("blocks.{layer}.feed_forward.body.experts.{expert}.up.weight",   "layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight", Same),
];

/// The keys besides the family's.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct MixtralConfig {
    sliding_window: Option<usize>,
    num_local_experts: usize,
    num_experts_per_tok: usize,
    /// Whether training adds the load-balancing loss.
    output_router_logits: bool,
    /// The weight of that loss. transformers pools all layers; we add up the losses of the layers.
    router_aux_loss_coef: f64,
    router_jitter_noise: f64,
}

/// Hugging Face leaves out keys with default values.
impl Default for MixtralConfig {
    fn default() -> Self {
        Self {
            sliding_window: None,
            num_local_experts: 8,
            num_experts_per_tok: 2,
            output_router_logits: false,
            router_aux_loss_coef: 0.001,
            router_jitter_noise: 0.0,
        }
    }
}

fn defaults() -> LlamaFamilyConfig {
    LlamaFamilyConfig {
        max_position_embeddings: 4096 * 32,
        intermediate_size: 14336,
        num_key_value_heads: Some(8),
        rms_norm_eps: 1e-5,
        rope_theta: Some(1e6),
        ..LlamaFamilyConfig::default()
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let own: MixtralConfig = typed(json, "")?;
    let hf = LlamaFamilyConfig::read(json, &defaults())?;
    if own.router_jitter_noise != 0.0 {
        return Err(format!(
            "router_jitter_noise {} is not supported; it must be 0",
            own.router_jitter_noise
        ));
    }
    let experts = ExpertsConfig {
        experts: own.num_local_experts,
        active: own.num_experts_per_tok,
        hidden_width: hf.intermediate_size,
        form: ExpertForm::Gated,
        activation: activation(&hf.hidden_act)?,
        bias: false,
        weighting: Some(ExpertWeighting::Renormalized),
        capacity_factor: None,
        balance_loss_weight: match own.output_router_logits {
            true => own.router_aux_loss_coef,
            false => 0.0,
        },
        z_loss_weight: 0.0,
    };
    LlamaFamily {
        bias: false,
        output_bias: false,
        head_norm: None,
        windows: WindowRun::uniform(hf.num_hidden_layers, own.sliding_window),
        feed_forward: FeedForwardConfig::Experts(experts),
        config: hf,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = LlamaFamily::of(config)?;
    let FeedForwardConfig::Experts(experts) = &family.feed_forward else {
        return None;
    };
    let own = MixtralConfig {
        sliding_window: WindowRun::common(&family.windows)?,
        num_local_experts: experts.experts,
        num_experts_per_tok: experts.active,
        output_router_logits: experts.balance_loss_weight > 0.0,
        router_aux_loss_coef: experts.balance_loss_weight,
        router_jitter_noise: 0.0,
    };
    family.json_with([json!(own)])
}
