//! Llama as Hugging Face writes it. Touvron et al. 2023.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{bare, classes_of_last, with_words};
use super::rope::{RopeWords, scaling_words};
use super::table::{Operation::Same, Part, Row, Table};
use super::words::{activation, activation_name, head};
use super::{Format, LastState};
use crate::{
    AttentionConfig, BlockConfig, FeedForwardConfig, FullAttentionConfig, GatedConfig, HeadConfig,
    ModelConfig, NormConfig, NormPlacement, PositionsConfig,
};

pub(super) const FORMAT: Format = Format {
    model_type: "llama",
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "model.",
            rows: ROWS,
        }],
        optional_prefix: "model.",
        // Angles that old versions saved as buffers, and the copy of the tied embedding.
        ignored: &[".rotary_emb.inv_freq", "lm_head.weight"],
        renamed: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        with_words(
            "LlamaForCausalLM",
            &[("words.weight", "lm_head.weight", Same)],
        ),
        bare("LlamaModel"),
        classes_of_last("LlamaForSequenceClassification"),
    ],
};

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("tokens.weight",                                  "embed_tokens.weight",                            Same),
    ("blocks.{layer}.attention.norm_before.weight",    "layers.{layer}.input_layernorm.weight",          Same),
    ("blocks.{layer}.attention.body.query.weight",     "layers.{layer}.self_attn.q_proj.weight",         Same),
    ("blocks.{layer}.attention.body.query.bias",       "layers.{layer}.self_attn.q_proj.bias",           Same),
    ("blocks.{layer}.attention.body.key.weight",       "layers.{layer}.self_attn.k_proj.weight",         Same),
    ("blocks.{layer}.attention.body.key.bias",         "layers.{layer}.self_attn.k_proj.bias",           Same),
    ("blocks.{layer}.attention.body.value.weight",     "layers.{layer}.self_attn.v_proj.weight",         Same),
    ("blocks.{layer}.attention.body.value.bias",       "layers.{layer}.self_attn.v_proj.bias",           Same),
    ("blocks.{layer}.attention.body.output.weight",    "layers.{layer}.self_attn.o_proj.weight",         Same),
    ("blocks.{layer}.attention.body.output.bias",      "layers.{layer}.self_attn.o_proj.bias",           Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "layers.{layer}.post_attention_layernorm.weight", Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "layers.{layer}.mlp.gate_proj.weight",            Same),
    ("blocks.{layer}.feed_forward.body.gate.bias",     "layers.{layer}.mlp.gate_proj.bias",              Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "layers.{layer}.mlp.up_proj.weight",              Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "layers.{layer}.mlp.up_proj.bias",                Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "layers.{layer}.mlp.down_proj.weight",            Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "layers.{layer}.mlp.down_proj.bias",              Same),
    ("final_norm.weight",                              "norm.weight",                                    Same),
];

/// The settings of config.json that matter to the numbers. Others are left alone.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    vocab_size: usize,
    max_position_embeddings: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: String,
    attention_dropout: f64,
    attention_bias: bool,
    mlp_bias: bool,
    rms_norm_eps: f64,
    initializer_range: f64,
    tie_word_embeddings: bool,
    /// Before transformers 5.
    rope_theta: Option<f64>,
    /// Before transformers 5.
    #[serde(skip_serializing_if = "Value::is_null")]
    rope_scaling: Value,
    /// Since transformers 5.
    #[serde(skip_serializing_if = "Value::is_null")]
    rope_parameters: Value,
}

/// Hugging Face leaves out what equals its defaults, which are those of Llama 7B.
impl Default for Words {
    fn default() -> Self {
        Self {
            vocab_size: 32000,
            max_position_embeddings: 2048,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: "silu".to_owned(),
            attention_dropout: 0.0,
            attention_bias: false,
            mlp_bias: false,
            rms_norm_eps: 1e-6,
            initializer_range: 0.02,
            tie_word_embeddings: false,
            rope_theta: None,
            rope_scaling: Value::Null,
            rope_parameters: Value::Null,
        }
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let words: Words = super::json::typed(words, "")?;
    let norm = NormConfig::Rms {
        epsilon: words.rms_norm_eps,
    };
    let rope = RopeWords {
        rope_theta: words.rope_theta,
        rope_scaling: &words.rope_scaling,
        rope_parameters: &words.rope_parameters,
        max_position_embeddings: words.max_position_embeddings,
    };
    Ok(ModelConfig {
        initial_deviation: words.initializer_range,
        head: head(words.tie_word_embeddings),
        positions: PositionsConfig::Rotary(rope.read()?),
        final_norm: Some(norm.clone()),
        blocks: vec![BlockConfig {
            repeat: words.num_hidden_layers,
            dropout: 0.0,
            placement: NormPlacement::Before,
            norm,
            attention: AttentionConfig::Full(FullAttentionConfig {
                scale: None,
                heads: words.num_attention_heads,
                key_value_heads: words.num_key_value_heads,
                head_width: words.head_dim,
                dropout: words.attention_dropout,
                bias: words.attention_bias,
                output_bias: words.attention_bias,
            }),
            cross: None,
            feed_forward: FeedForwardConfig::Gated(GatedConfig {
                hidden_width: words.intermediate_size,
                activation: activation(&words.hidden_act)?,
                bias: words.mlp_bias,
            }),
        }],
        ..ModelConfig::new(
            words.vocab_size,
            words.max_position_embeddings,
            words.hidden_size,
        )
    })
}

fn write(config: &ModelConfig) -> Option<Value> {
    let [block] = config.blocks.as_slice() else {
        return None;
    };
    let (
        AttentionConfig::Full(attention),
        PositionsConfig::Rotary(rotary),
        FeedForwardConfig::Gated(feed_forward),
    ) = (&block.attention, &config.positions, &block.feed_forward)
    else {
        return None;
    };
    let heads = attention.shared();
    let scaling = scaling_words(rotary);
    let mut parameters = scaling.clone();
    parameters["rope_theta"] = json!(rotary.theta);
    let words = Words {
        vocab_size: config.vocabulary,
        max_position_embeddings: config.length,
        hidden_size: config.width,
        intermediate_size: feed_forward.hidden_width,
        num_hidden_layers: block.repeat,
        num_attention_heads: attention.heads,
        num_key_value_heads: Some(heads.key_value_heads()),
        head_dim: Some(heads.head_width(config.width)),
        hidden_act: activation_name(feed_forward.activation).to_owned(),
        attention_dropout: attention.dropout,
        attention_bias: attention.bias,
        mlp_bias: feed_forward.bias,
        rms_norm_eps: block.norm.epsilon(),
        initializer_range: config.initial_deviation,
        tie_word_embeddings: config.head == HeadConfig::Tied,
        rope_theta: Some(rotary.theta),
        // Older versions of transformers read nothing else, and would leave the scaling out.
        rope_scaling: rotary.scaling.as_ref().map_or(Value::Null, |_| scaling),
        rope_parameters: parameters,
    };
    serde_json::to_value(words).ok()
}
