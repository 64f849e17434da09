//! What Llama (Touvron et al. 2023) and its descendants have in common: the words of config.json, the names of tensors, and
//! the model they mean. A format of the family is the handful of places in which it differs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::json::typed_over;
use super::rope::{RopeWords, scaling_words};
use super::table::{Operation::Same, Part, Row, Table};
use super::windows::Run;
use super::words::{activation, activation_name, head};
use crate::{
    AttentionConfig, BlockConfig, FeedForwardConfig, FullAttentionConfig, GatedConfig, HeadConfig,
    ModelConfig, NormConfig, NormPlacement, PositionsConfig, SlidingWindowConfig,
};

/// What some files leave out of the front of every name.
pub(super) const PREFIX: &str = "model.";

/// Angles that old versions saved as buffers, and the copy of the tied embedding.
pub(super) const IGNORED: &[&str] = &[".rotary_emb.inv_freq", "lm_head.weight"];

#[rustfmt::skip] // A table is read in columns.
pub(super) const ROWS: &[Row] = &[
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

/// Where the names of the family stand.
pub(super) const PART: Part = Part {
    ours: "stack.",
    theirs: PREFIX,
    rows: ROWS,
};

/// The names of a format with these parts.
pub(super) const fn table(parts: &'static [Part]) -> Table {
    Table {
        parts,
        optional_prefix: PREFIX,
        ignored: IGNORED,
        renamed: &[],
        twins: &[],
        zeros: &[],
    }
}

/// The head of a language model, which may be tied.
pub(super) const HEAD: &[Row] = &[("words.weight", "lm_head.weight", Same)];

/// The settings of config.json that matter to the numbers, in every format of the family. Others are left alone.
#[derive(Serialize, Deserialize)]
pub(super) struct Words {
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
    /// Of files whose weights are no floats.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub quantization_config: Value,
}

/// Hugging Face leaves out what equals its defaults. These are Llama's, of the 7B model; the others say where theirs differ.
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

impl Words {
    /// The words of a config.json, of a format with these defaults.
    pub fn read(words: &Value, defaults: &Self) -> Result<Self, String> {
        let words = typed_over(words, defaults)?;
        if words.quantization_config.is_null() {
            return Ok(words);
        }
        let method = &words.quantization_config["quant_method"];
        Err(format!(
            "quantization_config with quant_method {method} is not supported; give weights that are floats, or a GGUF file"
        ))
    }

    /// The one feed-forward layer of a block.
    pub fn gated(&self, bias: bool) -> Result<FeedForwardConfig, String> {
        Ok(FeedForwardConfig::Gated(GatedConfig {
            hidden_width: self.intermediate_size,
            activation: activation(&self.hidden_act)?,
            bias,
        }))
    }

    /// A norm over the last axis, as the family has everywhere.
    pub fn norm(&self) -> NormConfig {
        NormConfig::Rms {
            epsilon: self.rms_norm_eps,
        }
    }
}

/// A model of the family: the words that all formats have, and what they differ in.
pub(super) struct Family {
    pub words: Words,
    /// Of the maps of queries, keys and values.
    pub bias: bool,
    /// Of the map back.
    pub output_bias: bool,
    /// Of each head of queries and keys.
    pub head_norm: Option<NormConfig>,
    /// How far the layers see.
    pub windows: Vec<Run>,
    pub feed_forward: FeedForwardConfig,
}

impl Family {
    /// Our settings.
    pub fn model(self) -> Result<ModelConfig, String> {
        let words = &self.words;
        let rope = RopeWords {
            rope_theta: words.rope_theta,
            rope_scaling: &words.rope_scaling,
            partial_rotary_factor: words.partial_rotary_factor,
            rope_parameters: &words.rope_parameters,
            max_position_embeddings: words.max_position_embeddings,
        };
        Ok(ModelConfig {
            initial_deviation: words.initializer_range,
            head: head(words.tie_word_embeddings),
            positions: PositionsConfig::Rotary(rope.read()?),
            final_norm: Some(words.norm()),
            blocks: self.windows.iter().map(|run| self.block(run)).collect(),
            ..ModelConfig::new(
                words.vocab_size,
                words.max_position_embeddings,
                words.hidden_size,
            )
        })
    }

    fn block(&self, run: &Run) -> BlockConfig {
        let words = &self.words;
        let full = FullAttentionConfig {
            scale: None,
            heads: words.num_attention_heads,
            key_value_heads: words.num_key_value_heads,
            head_width: words.head_dim,
            dropout: words.attention_dropout,
            bias: self.bias,
            output_bias: self.output_bias,
            head_norm: self.head_norm.clone(),
        };
        BlockConfig {
            repeat: run.layers,
            dropout: 0.0,
            placement: NormPlacement::Before,
            norm: words.norm(),
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

    /// The words for our settings. What the first block says counts for all but the windows: whoever saves reads the words
    /// back, and so finds out whether they mean the same.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        let block = config.blocks.first()?;
        let heads = block.attention.heads()?;
        let PositionsConfig::Rotary(rotary) = &config.positions else {
            return None;
        };
        let (hidden_width, activation) = match &block.feed_forward {
            FeedForwardConfig::Gated(gated) => (gated.hidden_width, gated.activation),
            FeedForwardConfig::Experts(experts) => (experts.hidden_width, experts.activation),
            FeedForwardConfig::Plain(_) => return None,
        };
        let scaling = scaling_words(rotary);
        let mut parameters = scaling.clone();
        parameters["rope_theta"] = json!(rotary.theta);
        let words = Words {
            vocab_size: config.vocabulary,
            max_position_embeddings: config.length,
            hidden_size: config.width,
            intermediate_size: hidden_width,
            num_hidden_layers: config.layers(),
            num_attention_heads: heads.heads,
            num_key_value_heads: Some(heads.key_value_heads()),
            head_dim: Some(heads.head_width(config.width)),
            hidden_act: activation_name(activation).to_owned(),
            attention_dropout: heads.dropout,
            rms_norm_eps: block.norm.epsilon(),
            initializer_range: config.initial_deviation,
            tie_word_embeddings: config.head == HeadConfig::Tied,
            rope_theta: Some(rotary.theta),
            // Older versions of transformers read nothing else, and would leave the scaling out.
            rope_scaling: rotary.scaling.as_ref().map_or(Value::Null, |_| scaling),
            partial_rotary_factor: None,
            rope_parameters: parameters,
            quantization_config: Value::Null,
        };
        Some(Self {
            words,
            bias: heads.bias,
            output_bias: heads.output_bias,
            head_norm: heads.head_norm,
            windows: Run::of(config)?,
            feed_forward: block.feed_forward.clone(),
        })
    }

    /// The words of the family beside those that a format has of its own.
    pub fn words_with<const N: usize>(&self, own: [Value; N]) -> Option<Value> {
        let mut all = serde_json::to_value(&self.words).ok()?;
        for words in own {
            let Value::Object(words) = words else {
                return None;
            };
            all.as_object_mut()?.extend(words);
        }
        Some(all)
    }
}
