//! Llama in GGUF files. llama.cpp rotates neighbouring features where Hugging Face rotates the halves of a head, so the rows
//! of its maps of queries and keys stand in another order.

use super::frequencies::scaling;
use super::{Architecture, Keys};
use crate::ModelConfig;
use crate::checkpoint::TensorFile;
use crate::checkpoint::llama_family::{Family, Words};
use crate::checkpoint::table::{Operation::*, Part, Row, Table};
use crate::checkpoint::windows::Run;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    read,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "",
            rows: ROWS,
        }],
        optional_prefix: "",
        // What it says is among the settings already.
        ignored: &[FREQUENCIES],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    heads: &[("words.weight", "output.weight", Same)],
};

/// What the wavelengths are multiplied by.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";

#[rustfmt::skip] // A table is read in columns.
const ROWS: &[Row] = &[
    ("tokens.weight",                                  "token_embd.weight",               Same),
    ("blocks.{layer}.attention.norm_before.weight",    "blk.{layer}.attn_norm.weight",    Same),
    ("blocks.{layer}.attention.body.query.weight",     "blk.{layer}.attn_q.weight",       NeighbouringPairs),
    ("blocks.{layer}.attention.body.query.bias",       "blk.{layer}.attn_q.bias",         NeighbouringPairs),
    ("blocks.{layer}.attention.body.key.weight",       "blk.{layer}.attn_k.weight",       NeighbouringPairs),
    ("blocks.{layer}.attention.body.key.bias",         "blk.{layer}.attn_k.bias",         NeighbouringPairs),
    ("blocks.{layer}.attention.body.value.weight",     "blk.{layer}.attn_v.weight",       Same),
    ("blocks.{layer}.attention.body.value.bias",       "blk.{layer}.attn_v.bias",         Same),
    ("blocks.{layer}.attention.body.output.weight",    "blk.{layer}.attn_output.weight",  Same),
    ("blocks.{layer}.attention.body.output.bias",      "blk.{layer}.attn_output.bias",    Same),
    ("blocks.{layer}.feed_forward.norm_before.weight", "blk.{layer}.ffn_norm.weight",     Same),
    ("blocks.{layer}.feed_forward.body.gate.weight",   "blk.{layer}.ffn_gate.weight",     Same),
    ("blocks.{layer}.feed_forward.body.gate.bias",     "blk.{layer}.ffn_gate.bias",       Same),
    ("blocks.{layer}.feed_forward.body.up.weight",     "blk.{layer}.ffn_up.weight",       Same),
    ("blocks.{layer}.feed_forward.body.up.bias",       "blk.{layer}.ffn_up.bias",         Same),
    ("blocks.{layer}.feed_forward.body.down.weight",   "blk.{layer}.ffn_down.weight",     Same),
    ("blocks.{layer}.feed_forward.body.down.bias",     "blk.{layer}.ffn_down.bias",       Same),
    ("final_norm.weight",                              "output_norm.weight",              Same),
];

/// The keys that have a meaning here. Two of them change nothing: how the original file was laid out, and whether a scaling
/// was trained with.
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
                "{name} {count} is not supported; give a file of a model without experts"
            ));
        }
    }
    let heads = keys.needed_size("attention.head_count")?;
    let width = keys.needed_size("embedding_length")?;
    let embedding = tensors.shape("token_embd.weight").and_then(<[_]>::first);
    let said = keys.size("vocab_size")?;
    let words = Words {
        vocab_size: said.or(embedding.copied()).unwrap_or(0),
        max_position_embeddings: keys.needed_size("context_length")?,
        hidden_size: width,
        intermediate_size: keys.needed_size("feed_forward_length")?,
        num_hidden_layers: keys.needed_size("block_count")?,
        num_attention_heads: heads,
        num_key_value_heads: keys.size("attention.head_count_kv")?,
        head_dim: head_width(keys, width / heads.max(1))?,
        rms_norm_eps: keys.needed_number("attention.layer_norm_rms_epsilon")?,
        tie_word_embeddings: tensors.shape("output.weight").is_none(),
        rope_theta: keys.number("rope.freq_base")?,
        rope_parameters: scaling(keys, tensors)?,
        ..Words::default()
    };
    // Biases have no key: they are there or not.
    let there = |name: &str| tensors.shape(&format!("blk.0.{name}.bias")).is_some();
    Family {
        bias: there("attn_q"),
        output_bias: there("attn_output"),
        head_norm: None,
        windows: Run::all(words.num_hidden_layers, None),
        feed_forward: words.gated(there("ffn_up"))?,
        words,
    }
    .model()
}

/// The width of a head where it is said; all keys that say it must agree.
fn head_width(keys: &Keys, implied: usize) -> Result<Option<usize>, String> {
    let said = keys.size("attention.key_length")?;
    let width = said.unwrap_or(implied);
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = keys.size(key)?.filter(|it| *it != width) {
            let name = keys.name(key);
            return Err(format!(
                "{name} {other} is not supported; it must be the width of a head, {width}"
            ));
        }
    }
    Ok(said)
}
