//! Llama in GGUF files. llama.cpp's RoPE rotates interleaved pairs where Hugging Face's rotates the halves of a head, so
//! the rows of query and key projections are permuted.

use super::rope_scaling::scaling;
use super::{Architecture, Keys};
use crate::TensorFile;
use crate::llama_family::{LlamaFamily, LlamaFamilyConfig};
use crate::name_table::{NameTable, Section, TensorRow, Transform::*};
use crate::sliding_windows::WindowRun;
use attentive_model::ModelConfig;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    read,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "",
            rows: ROWS,
        }],
        optional_prefix: "",
        // RoPE scaling, which the config already has.
        ignored: &[FREQUENCIES],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    heads: &[("lm_head.weight", "output.weight", Same)],
};

/// The RoPE frequency factors: each divides one frequency.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";

#[rustfmt::skip] // Keeps the columns aligned.
const ROWS: &[TensorRow] = &[
    ("tokens.weight",                                  "token_embd.weight",              Same),
    ("blocks.{layer}.attention.norm_before.weight",    "blk.{layer}.attn_norm.weight",   Same),
    ("blocks.{layer}.attention.body.query.weight",     "blk.{layer}.attn_q.weight",      InterleavedRope),
    ("blocks.{layer}.attention.body.query.bias",       "blk.{layer}.attn_q.bias",        InterleavedRope),
    ("blocks.{layer}.attention.body.key.weight",       "blk.{layer}.attn_k.weight",      InterleavedRope),
    ("blocks.{layer}.attention.body.key.bias",         "blk.{layer}.attn_k.bias",        InterleavedRope),
    ("blocks.{layer}.attention.body.value.weight",     "blk.{layer}.attn_v.weight",      Same),
    ("blocks.{layer}.attention.body.value.bias",       "blk.{layer}.attn_v.bias",        Same),
    ("blocks.{layer}.attention.body.output.weight",    "blk.{layer}.attn_output.weight", Same),
    ("blocks.{layer}.attention.body.output.bias",      "blk.{layer}.attn_output.bias",   Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "blk.{layer}.ffn_norm.weight",    Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "blk.{layer}.ffn_gate.weight",    Same),
    ("blocks.{layer}.feed_forward.body.gate.bias",     "blk.{layer}.ffn_gate.bias",      Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "blk.{layer}.ffn_up.weight",      Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "blk.{layer}.ffn_up.bias",        Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "blk.{layer}.ffn_down.weight",    Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "blk.{layer}.ffn_down.bias",      Same),
    ("final_norm.weight",                              "output_norm.weight",             Same),
];

/// The supported keys. Two of them have no effect: the layout of the original file, and whether the scaling was fine-tuned.
const KNOWN: &[&str] = &[
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "tensor_data_layout",
    "expert_count",
    "expert_used_count",
];

fn read(keys: &Keys, tensors: &TensorFile) -> Result<ModelConfig, String> {
    keys.refuse_others(KNOWN)?;
    for key in ["expert_count", "expert_used_count"] {
        if let Some(count) = keys.size(key)?.filter(|it| *it > 0) {
            let name = keys.name(key);
            return Err(format!(
                "{name} {count} is not supported; use a model without experts"
            ));
        }
    }
    let heads = keys.required_size("attention.head_count")?;
    let width = keys.required_size("embedding_length")?;
    let embedding = tensors.shape("token_embd.weight").and_then(<[_]>::first);
    let vocabulary = keys.size("vocab_size")?;
    let hf = LlamaFamilyConfig {
        vocab_size: vocabulary.or(embedding.copied()).unwrap_or(0),
        max_position_embeddings: keys.required_size("context_length")?,
        hidden_size: width,
        intermediate_size: keys.required_size("feed_forward_length")?,
        num_hidden_layers: keys.required_size("block_count")?,
        num_attention_heads: heads,
        num_key_value_heads: keys.size("attention.head_count_kv")?,
        head_dim: head_width(keys, width / heads.max(1))?,
        rms_norm_eps: keys.required_float("attention.layer_norm_rms_epsilon")?,
        tie_word_embeddings: tensors.shape("output.weight").is_none(),
        rope_theta: keys.float("rope.freq_base")?,
        rope_parameters: scaling(keys, tensors)?,
        ..LlamaFamilyConfig::default()
    };
    // Biases have no key: a model has those that the file has.
    let has_bias = |name: &str| tensors.shape(&format!("blk.0.{name}.bias")).is_some();
    LlamaFamily {
        bias: has_bias("attn_q"),
        output_bias: has_bias("attn_output"),
        head_norm: None,
        windows: WindowRun::uniform(hf.num_hidden_layers, None),
        feed_forward: hf.gated(has_bias("ffn_up"))?,
        config: hf,
    }
    .model()
}

/// The head width, where a key gives it; all such keys must agree.
fn head_width(keys: &Keys, implied: usize) -> Result<Option<usize>, String> {
    let given = keys.size("attention.key_length")?;
    let width = given.unwrap_or(implied);
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = keys.size(key)?.filter(|it| *it != width) {
            let name = keys.name(key);
            return Err(format!(
                "{name} {other} is not supported; it must be the head width, {width}"
            ));
        }
    }
    Ok(given)
}
