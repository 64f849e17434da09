//! GPT-2 in Hugging Face's format. Radford et al. 2019.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::activation::{activation, activation_name};
use super::heads::{base_model, last_token_classifier, lm_head, refuse_unless, tied_or_separate};
use super::name_table::{NameTable, Section, TensorRow, Transform::*};
use super::{Format, LastHiddenState, config_json};
use attentive_model::attention::{AttentionConfig, FullAttentionConfig};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::feed_forward::{FeedForwardConfig, PlainConfig};
use attentive_model::head::HeadConfig;
use attentive_model::positions::{LearnedConfig, PositionsConfig};
use attentive_model::{ModelConfig, NormConfig, StackConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "gpt2",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "transformer.",
            rows: ROWS,
        }],
        optional_prefix: "transformer.",
        ignored: IGNORED,
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        lm_head("GPT2LMHeadModel", LM_HEAD_ROWS),
        base_model("GPT2Model"),
        last_token_classifier("GPT2ForSequenceClassification"),
    ],
};

/// Causal masks that old versions saved as buffers, and the copy of the tied embedding.
pub(super) const IGNORED: &[&str] = &[
    ".attn.bias",
    ".attn.masked_bias",
    ".crossattention.bias",
    ".crossattention.masked_bias",
    "lm_head.weight",
];

pub(super) const LM_HEAD_ROWS: &[TensorRow] = &[("lm_head.weight", "lm_head.weight", Same)];

#[rustfmt::skip] // Keeps the columns aligned.
pub(super) const ROWS: &[TensorRow] = &[
    ("tokens.weight",                                  "wte.weight",                             Same),
    ("positions.weight",                               "wpe.weight",                             Same),
    ("blocks.{layer}.attention.norm_before.weight",    "h.{layer}.ln_1.weight",                  Same),
    ("blocks.{layer}.attention.norm_before.bias",      "h.{layer}.ln_1.bias",                    Same),
    ("blocks.{layer}.attention.body.query.weight",     "h.{layer}.attn.c_attn.weight",           TransposedThird(0)),
    ("blocks.{layer}.attention.body.key.weight",       "h.{layer}.attn.c_attn.weight",           TransposedThird(1)),
    ("blocks.{layer}.attention.body.value.weight",     "h.{layer}.attn.c_attn.weight",           TransposedThird(2)),
    ("blocks.{layer}.attention.body.query.bias",       "h.{layer}.attn.c_attn.bias",             Third(0)),
    ("blocks.{layer}.attention.body.key.bias",         "h.{layer}.attn.c_attn.bias",             Third(1)),
    ("blocks.{layer}.attention.body.value.bias",       "h.{layer}.attn.c_attn.bias",             Third(2)),
    ("blocks.{layer}.attention.body.output.weight",    "h.{layer}.attn.c_proj.weight",           Transpose),
    ("blocks.{layer}.attention.body.output.bias",      "h.{layer}.attn.c_proj.bias",             Same),
    ("blocks.{layer}.cross.norm_before.weight",        "h.{layer}.ln_cross_attn.weight",         Same),
    ("blocks.{layer}.cross.norm_before.bias",          "h.{layer}.ln_cross_attn.bias",           Same),
    ("blocks.{layer}.cross.body.query.weight",         "h.{layer}.crossattention.q_attn.weight", Transpose),
    ("blocks.{layer}.cross.body.query.bias",           "h.{layer}.crossattention.q_attn.bias",   Same),
    ("blocks.{layer}.cross.body.key.weight",           "h.{layer}.crossattention.c_attn.weight", TransposedHalf(0)),
    ("blocks.{layer}.cross.body.value.weight",         "h.{layer}.crossattention.c_attn.weight", TransposedHalf(1)),
    ("blocks.{layer}.cross.body.key.bias",             "h.{layer}.crossattention.c_attn.bias",   Half(0)),
    ("blocks.{layer}.cross.body.value.bias",           "h.{layer}.crossattention.c_attn.bias",   Half(1)),
    ("blocks.{layer}.cross.body.output.weight",        "h.{layer}.crossattention.c_proj.weight", Transpose),
    ("blocks.{layer}.cross.body.output.bias",          "h.{layer}.crossattention.c_proj.bias",   Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "h.{layer}.ln_2.weight",                  Same),
    ("blocks.{layer}.feed_forward.norm_before.bias",   "h.{layer}.ln_2.bias",                    Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "h.{layer}.mlp.c_fc.weight",              Transpose),
    ("blocks.{layer}.feed_forward.body.up.bias",       "h.{layer}.mlp.c_fc.bias",                Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "h.{layer}.mlp.c_proj.weight",            Transpose),
    ("blocks.{layer}.feed_forward.body.down.bias",     "h.{layer}.mlp.c_proj.bias",              Same),
    ("final_norm.weight",                              "ln_f.weight",                            Same),
    ("final_norm.bias",                                "ln_f.bias",                              Same),
];

/// The keys of config.json that affect the output. Other keys are ignored.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Gpt2Config {
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    activation_function: String,
    resid_pdrop: f64,
    embd_pdrop: f64,
    attn_pdrop: f64,
    layer_norm_epsilon: f64,
    initializer_range: f64,
    scale_attn_weights: bool,
    scale_attn_by_inverse_layer_idx: bool,
    add_cross_attention: bool,
    tie_word_embeddings: bool,
}

/// Hugging Face leaves out keys with default values, which are those of GPT-2 small.
impl Default for Gpt2Config {
    fn default() -> Self {
        Self {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: "gelu_new".to_owned(),
            resid_pdrop: 0.1,
            embd_pdrop: 0.1,
            attn_pdrop: 0.1,
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            add_cross_attention: false,
            tie_word_embeddings: true,
        }
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf: Gpt2Config = config_json::typed(json, "")?;
    refuse_unless(&[
        ("scale_attn_weights", hf.scale_attn_weights, true),
        (
            "scale_attn_by_inverse_layer_idx",
            hf.scale_attn_by_inverse_layer_idx,
            false,
        ),
    ])?;
    let norm = NormConfig::Layer {
        epsilon: hf.layer_norm_epsilon,
    };
    let attention = AttentionConfig::Full(FullAttentionConfig {
        scale: None,
        heads: hf.n_head,
        key_value_heads: None,
        head_width: None,
        dropout: hf.attn_pdrop,
        bias: true,
        output_bias: true,
        head_norm: None,
    });
    let stack = StackConfig {
        embedding_dropout: hf.embd_pdrop,
        init_std: hf.initializer_range,
        positions: PositionsConfig::Learned(LearnedConfig::default()),
        final_norm: Some(norm.clone()),
        blocks: vec![BlockConfig {
            repeat: hf.n_layer,
            dropout: hf.resid_pdrop,
            placement: NormPlacement::Before,
            norm,
            cross: hf.add_cross_attention.then(|| attention.clone()),
            attention,
            feed_forward: FeedForwardConfig::Plain(PlainConfig {
                hidden_width: hf.n_inner.unwrap_or(hf.n_embd.saturating_mul(4)),
                activation: activation(&hf.activation_function)?,
                bias: true,
            }),
        }],
        ..StackConfig::new(hf.vocab_size, hf.n_positions, hf.n_embd)
    };
    Ok(ModelConfig::new(stack).with_head(tied_or_separate(hf.tie_word_embeddings)))
}

fn write(config: &ModelConfig) -> Option<Value> {
    let [block] = config.stack.blocks.as_slice() else {
        return None;
    };
    let (AttentionConfig::Full(attention), FeedForwardConfig::Plain(feed_forward)) =
        (&block.attention, &block.feed_forward)
    else {
        return None;
    };
    let hf = Gpt2Config {
        vocab_size: config.stack.vocabulary,
        n_positions: config.stack.length,
        n_embd: config.stack.width,
        n_layer: block.repeat,
        n_head: attention.heads,
        n_inner: Some(feed_forward.hidden_width),
        activation_function: activation_name(feed_forward.activation).to_owned(),
        resid_pdrop: block.dropout,
        embd_pdrop: config.stack.embedding_dropout,
        attn_pdrop: attention.dropout,
        layer_norm_epsilon: block.norm.epsilon(),
        initializer_range: config.stack.init_std,
        add_cross_attention: block.cross.is_some(),
        tie_word_embeddings: config.head == HeadConfig::Tied,
        ..Gpt2Config::default()
    };
    serde_json::to_value(hf).ok()
}
