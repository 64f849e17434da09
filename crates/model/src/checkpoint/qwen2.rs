//! Qwen2 as Hugging Face writes it: Llama with biases of queries, keys and values. Yang et al. 2024.

use serde_json::{Value, json};

use super::heads::{bare, classes_of_last, with_words};
use super::llama_family::{self as family, Family};
use super::windows::QwenWindows;
use super::{Format, LastState, json::typed};
use crate::ModelConfig;

pub(super) const FORMAT: Format = Format {
    model_type: "qwen2",
    decoder: None,
    read,
    write,
    table: family::table(&[family::PART]),
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        with_words("Qwen2ForCausalLM", family::HEAD),
        bare("Qwen2Model"),
        classes_of_last("Qwen2ForSequenceClassification"),
    ],
};

fn defaults() -> family::Words {
    family::Words {
        vocab_size: 151_936,
        max_position_embeddings: 32768,
        intermediate_size: 22016,
        num_key_value_heads: Some(32),
        ..family::Words::default()
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let windows: QwenWindows = typed(words, "")?;
    let words = family::Words::read(words, &defaults())?;
    Family {
        bias: true,
        output_bias: false,
        head_norm: None,
        windows: windows.runs(words.num_hidden_layers)?,
        feed_forward: words.gated(false)?,
        words,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = Family::of(config)?;
    family.words_with([json!(QwenWindows::of(&family.windows)?)])
}
