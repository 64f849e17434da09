//! Qwen3 as Hugging Face writes it: Llama with a norm of each head of queries and keys. Yang et al. 2025.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{bare, classes_of_last, with_words};
use super::llama_family::{self as family, Family};
use super::table::{Operation::Same, Part, Row};
use super::windows::QwenWindows;
use super::{Format, LastState, json::typed};
use crate::ModelConfig;

pub(super) const FORMAT: Format = Format {
    model_type: "qwen3",
    decoder: None,
    read,
    write,
    table: family::table(&[
        family::PART,
        Part {
            ours: "stack.",
            theirs: family::PREFIX,
            rows: HEAD_NORMS,
        },
    ]),
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        with_words("Qwen3ForCausalLM", family::HEAD),
        bare("Qwen3Model"),
        classes_of_last("Qwen3ForSequenceClassification"),
    ],
};

#[rustfmt::skip] // A table is read in columns.
const HEAD_NORMS: &[Row] = &[
    ("blocks.{layer}.attention.body.query_norm.weight", "layers.{layer}.self_attn.q_norm.weight", Same),
    ("blocks.{layer}.attention.body.key_norm.weight",   "layers.{layer}.self_attn.k_norm.weight", Same),
];

/// What it has besides the words of the family and of windows.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Words {
    attention_bias: bool,
}

fn defaults() -> family::Words {
    family::Words {
        vocab_size: 151_936,
        max_position_embeddings: 32768,
        intermediate_size: 22016,
        num_key_value_heads: Some(32),
        head_dim: Some(128),
        ..family::Words::default()
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let own: Words = typed(words, "")?;
    let windows: QwenWindows = typed(words, "")?;
    let words = family::Words::read(words, &defaults())?;
    Family {
        bias: own.attention_bias,
        output_bias: own.attention_bias,
        head_norm: Some(words.norm()),
        windows: windows.runs(words.num_hidden_layers)?,
        feed_forward: words.gated(false)?,
        words,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = Family::of(config)?;
    let own = Words {
        attention_bias: family.bias,
    };
    family.words_with([json!(own), json!(QwenWindows::of(&family.windows)?)])
}
