//! What Llama (Touvron et al. 2023) and its descendants share: the keys of config.json, the tensor names and the model. The
//! format of each model type has only what differs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::{activation, activation_name};
use super::config_json::typed_over;
use super::heads::tied_or_separate;
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::rope::{RopeKeys, scaling_json};
use super::sliding_windows::WindowRun;
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::attention::{AttentionConfig, FullAttentionConfig, SlidingWindowConfig};
use attentive_model::block::{BlockConfig, NormPlacement};
use attentive_model::feed_forward::{FeedForwardConfig, GatedConfig};
use attentive_model::head::HeadConfig;
use attentive_model::positions::PositionsConfig;
use attentive_model::{ModelConfig, NormConfig, StackConfig};

/// A prefix that some files leave out of every name.
const PREFIX: &str = "model.";

/// Rotary buffers that old versions saved, and the copy of the tied embedding.
const IGNORED: &[&str] = &[".rotary_emb.inv_freq", "lm_head.weight"];

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
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

/// The names that all formats share.
pub(super) const SECTION: Section = section(ROWS);

/// Names of the stack.
pub(super) const fn section(rows: &'static [TensorRow]) -> Section {
    Section {
        model_prefix: "stack.",
        file_prefix: PREFIX,
        rows,
    }
}

/// The format of a model type of the family.
pub(super) const fn format(
    model_type: &'static str,
    read: fn(&Value) -> Result<ModelConfig, String>,
    write: fn(&ModelConfig) -> Option<Value>,
    sections: &'static [Section],
    architectures: &'static [ModelClass],
) -> Format {
    Format {
        model_type,
        decoder: None,
        read,
        write,
        table: NameTable {
            sections,
            optional_prefix: PREFIX,
            ignored: IGNORED,
            renamed: &[],
            aliases: &[],
            zero_if_missing: &[],
        },
        group: |_| 1,
        last_hidden_state: LastHiddenState::AfterFinalNorm,
        architectures,
    }
}

/// The LM head, which may be tied.
pub(super) const LM_HEAD_ROWS: &[TensorRow] = &[("lm_head.weight", "lm_head.weight", Same)];

/// The keys of config.json that affect the output, in every format of the family. Other keys are ignored.
#[derive(Serialize, Deserialize)]
pub(super) struct LlamaFamilyConfig {
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: Option<usize>,
    pub head_dim: Option<usize>,
    pub hidden_act: String,
    pub attention_dropout: f64,
    pub rms_norm_eps: f64,
    pub initializer_range: f64,
    pub tie_word_embeddings: bool,
    /// Before transformers 5.
    pub rope_theta: Option<f64>,
    /// Before transformers 5.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub rope_scaling: Value,
    /// Before transformers 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_rotary_factor: Option<f64>,
    /// Since transformers 5.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub rope_parameters: Value,
    /// Set where weights are quantized, which is not supported.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub quantization_config: Value,
}

/// Hugging Face leaves out keys with default values. These are Llama's, of the 7B model; the other formats override theirs.
impl Default for LlamaFamilyConfig {
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
            rms_norm_eps: 1e-6,
            initializer_range: 0.02,
            tie_word_embeddings: false,
            rope_theta: None,
            rope_scaling: Value::Null,
            partial_rotary_factor: None,
            rope_parameters: Value::Null,
            quantization_config: Value::Null,
        }
    }
}

impl LlamaFamilyConfig {
    /// Reads the family's keys of a config.json, in a format with these defaults.
    pub fn read(json: &Value, defaults: &Self) -> Result<Self, String> {
        let hf = typed_over(json, defaults)?;
        if hf.quantization_config.is_null() {
            return Ok(hf);
        }
        let method = &hf.quantization_config["quant_method"];
        Err(format!(
            "quantization_config with quant_method {method} is not supported; use weights that are floats, or a GGUF file"
        ))
    }

    /// The gated feed-forward layer of a block.
    pub fn gated(&self, bias: bool) -> Result<FeedForwardConfig, String> {
        Ok(FeedForwardConfig::Gated(GatedConfig {
            hidden_width: self.intermediate_size,
            activation: activation(&self.hidden_act)?,
            bias,
        }))
    }

    /// RMSNorm, which the family has everywhere.
    pub fn norm(&self) -> NormConfig {
        NormConfig::Rms {
            epsilon: self.rms_norm_eps,
        }
    }
}

/// A model of the family: the keys that all formats share, and what differs.
pub(super) struct LlamaFamily {
    pub config: LlamaFamilyConfig,
    /// Biases of the query, key and value projections.
    pub bias: bool,
    /// Bias of the output projection.
    pub output_bias: bool,
    /// The norm of each head's queries and keys.
    pub head_norm: Option<NormConfig>,
    /// The sliding windows of the layers.
    pub windows: Vec<WindowRun>,
    pub feed_forward: FeedForwardConfig,
}

impl LlamaFamily {
    /// Our config of the model.
    pub fn model(self) -> Result<ModelConfig, String> {
        let hf = &self.config;
        let rope = RopeKeys {
            rope_theta: hf.rope_theta,
            rope_scaling: &hf.rope_scaling,
            partial_rotary_factor: hf.partial_rotary_factor,
            rope_parameters: &hf.rope_parameters,
            max_position_embeddings: hf.max_position_embeddings,
        };
        let stack = StackConfig {
            init_std: hf.initializer_range,
            positions: PositionsConfig::Rotary(rope.read()?),
            final_norm: Some(hf.norm()),
            blocks: self.windows.iter().map(|run| self.block(run)).collect(),
            ..StackConfig::new(hf.vocab_size, hf.max_position_embeddings, hf.hidden_size)
        };
        Ok(ModelConfig::new(stack).with_head(tied_or_separate(hf.tie_word_embeddings)))
    }

    fn block(&self, run: &WindowRun) -> BlockConfig {
        let hf = &self.config;
        let full = FullAttentionConfig {
            scale: None,
            heads: hf.num_attention_heads,
            key_value_heads: hf.num_key_value_heads,
            head_width: hf.head_dim,
            dropout: hf.attention_dropout,
            bias: self.bias,
            output_bias: self.output_bias,
            head_norm: self.head_norm.clone(),
        };
        BlockConfig {
            repeat: run.layers,
            dropout: 0.0,
            placement: NormPlacement::Before,
            norm: hf.norm(),
            attention: match run.window {
                None => AttentionConfig::Full(full),
                Some(window) => AttentionConfig::SlidingWindow(SlidingWindowConfig {
                    window,
                    heads: full.heads,
                    key_value_heads: full.key_value_heads,
                    head_width: full.head_width,
                    dropout: full.dropout,
                    bias: full.bias,
                    output_bias: full.output_bias,
                    head_norm: full.head_norm,
                }),
            },
            cross: None,
            feed_forward: self.feed_forward.clone(),
        }
    }

    /// The family's keys for a model. All but the windows are taken from the first block: saving reads the result back, which
    /// shows whether other blocks differ.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        let block = config.stack.blocks.first()?;
        let heads = block.attention.heads()?;
        let PositionsConfig::Rotary(rotary) = &config.stack.positions else {
            return None;
        };
        let (hidden_width, activation) = match &block.feed_forward {
            FeedForwardConfig::Gated(gated) => (gated.hidden_width, gated.activation),
            FeedForwardConfig::Experts(experts) => (experts.hidden_width, experts.activation),
            FeedForwardConfig::Plain(_) => return None,
        };
        let scaling = scaling_json(rotary);
        let mut parameters = scaling.clone();
        parameters["rope_theta"] = json!(rotary.theta);
        let hf = LlamaFamilyConfig {
            vocab_size: config.stack.vocabulary,
            max_position_embeddings: config.stack.length,
            hidden_size: config.stack.width,
            intermediate_size: hidden_width,
            num_hidden_layers: config.stack.layers(),
            num_attention_heads: heads.heads,
            num_key_value_heads: Some(heads.key_value_heads()),
            head_dim: Some(heads.head_width(config.stack.width)),
            hidden_act: activation_name(activation).to_owned(),
            attention_dropout: heads.dropout,
            rms_norm_eps: block.norm.epsilon(),
            initializer_range: config.stack.init_std,
            tie_word_embeddings: config.head == HeadConfig::Tied,
            rope_theta: Some(rotary.theta),
            // transformers before version 5 reads only this key.
            rope_scaling: rotary.scaling.as_ref().map_or(Value::Null, |_| scaling),
            partial_rotary_factor: None,
            rope_parameters: parameters,
            quantization_config: Value::Null,
        };
        Some(Self {
            config: hf,
            bias: heads.bias,
            output_bias: heads.output_bias,
            head_norm: heads.head_norm,
            windows: WindowRun::of(config)?,
            feed_forward: block.feed_forward.clone(),
        })
    }

    /// config.json with the family's keys and a format's own.
    pub fn json_with<const N: usize>(&self, own: [Value; N]) -> Option<Value> {
        let mut json = serde_json::to_value(&self.config).ok()?;
        for keys in own {
            let Value::Object(keys) = keys else {
                return None;
            };
            json.as_object_mut()?.extend(keys);
        }
        Some(json)
    }
}
