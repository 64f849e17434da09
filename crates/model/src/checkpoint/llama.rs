//! Llama as Hugging Face writes it. Touvron et al. 2023.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{bare, classes_of_last, with_words};
use super::llama_family::{self as family, Family};
use super::windows::Run;
use super::{Format, LastState, json::typed};
use crate::{FeedForwardConfig, ModelConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "llama",
    decoder: None,
    read,
    write,
    table: family::table(&[family::PART]),
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        with_words("LlamaForCausalLM", family::HEAD),
        bare("LlamaModel"),
        classes_of_last("LlamaForSequenceClassification"),
    ],
};

/// What it has besides the words of the family.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Words {
    attention_bias: bool,
    mlp_bias: bool,
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let own: Words = typed(words, "")?;
    let words = family::Words::read(words, &family::Words::default())?;
    Family {
        bias: own.attention_bias,
        output_bias: own.attention_bias,
        head_norm: None,
        windows: Run::all(words.num_hidden_layers, None),
        feed_forward: words.gated(own.mlp_bias)?,
        words,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = Family::of(config)?;
    let FeedForwardConfig::Gated(feed_forward) = &family.feed_forward else {
        return None;
    };
    let own = Words {
        attention_bias: family.bias,
        mlp_bias: feed_forward.bias,
    };
    family.words_with([json!(own)])
}
