//! Mixtral as Hugging Face writes it: Mistral with experts. Jiang et al. 2024.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{bare, classes_of_last, with_words};
use super::llama_family::{self as family, Family};
use super::table::{Operation::Same, Part, Row};
use super::windows::Run;
use super::words::activation;
use super::{Format, LastState, json::typed};
use crate::{ExpertForm, ExpertWeighting, ExpertsConfig, FeedForwardConfig, ModelConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "mixtral",
    decoder: None,
    read,
    write,
    table: family::table(&[
        family::PART,
        Part {
            ours: "stack.",
            theirs: family::PREFIX,
            rows: EXPERTS,
        },
    ]),
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        with_words("MixtralForCausalLM", family::HEAD),
        bare("MixtralModel"),
        classes_of_last("MixtralForSequenceClassification"),
    ],
};

#[rustfmt::skip] // A table is read in columns.
const EXPERTS: &[Row] = &[
    ("blocks.{layer}.feed_forward.body.router.weight",                "layers.{layer}.block_sparse_moe.gate.weight",                Same),
    ("blocks.{layer}.feed_forward.body.experts.{expert}.gate.weight", "layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight", Same),
    ("blocks.{layer}.feed_forward.body.experts.{expert}.down.weight", "layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight", Same),
    ("blocks.{layer}.feed_forward.body.experts.{expert}.up.weight",   "layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight", Same),
];

/// What it has besides the words of the family.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    sliding_window: Option<usize>,
    num_local_experts: usize,
    num_experts_per_tok: usize,
    /// Whether training adds the loss of balance.
    output_router_logits: bool,
    /// The weight of that loss. Transformers pool the layers where we add up the losses of each.
    router_aux_loss_coef: f64,
    router_jitter_noise: f64,
}

/// Hugging Face leaves out what equals its defaults.
impl Default for Words {
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

fn defaults() -> family::Words {
    family::Words {
        max_position_embeddings: 4096 * 32,
        intermediate_size: 14336,
        num_key_value_heads: Some(8),
        rms_norm_eps: 1e-5,
        rope_theta: Some(1e6),
        ..family::Words::default()
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let own: Words = typed(words, "")?;
    let words = family::Words::read(words, &defaults())?;
    if own.router_jitter_noise != 0.0 {
        return Err(format!(
            "router_jitter_noise {} is not supported; it must be 0",
            own.router_jitter_noise
        ));
    }
    let experts = ExpertsConfig {
        experts: own.num_local_experts,
        active: own.num_experts_per_tok,
        hidden_width: words.intermediate_size,
        form: ExpertForm::Gated,
        activation: activation(&words.hidden_act)?,
        bias: false,
        weighting: Some(ExpertWeighting::Renormalized),
        capacity: None,
        balance_loss: match own.output_router_logits {
            true => own.router_aux_loss_coef,
            false => 0.0,
        },
        z_loss: 0.0,
    };
    Family {
        bias: false,
        output_bias: false,
        head_norm: None,
        windows: Run::all(words.num_hidden_layers, own.sliding_window),
        feed_forward: FeedForwardConfig::Experts(experts),
        words,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = Family::of(config)?;
    let FeedForwardConfig::Experts(experts) = &family.feed_forward else {
        return None;
    };
    let own = Words {
        sliding_window: Run::common(&family.windows)?,
        num_local_experts: experts.experts,
        num_experts_per_tok: experts.active,
        output_router_logits: experts.balance_loss > 0.0,
        router_aux_loss_coef: experts.balance_loss,
        router_jitter_noise: 0.0,
    };
    family.words_with([json!(own)])
}
