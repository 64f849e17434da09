//! Mistral as Hugging Face writes it: Llama with a sliding window. Jiang et al. 2023.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::heads::{bare, classes_of_last, with_words};
use super::llama_family::{self as family, Family};
use super::windows::Run;
use super::{Format, LastState, json::typed};
use crate::ModelConfig;

pub(super) const FORMAT: Format = Format {
    model_type: "mistral",
    decoder: None,
    read,
    write,
    table: family::table(&[family::PART]),
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        with_words("MistralForCausalLM", family::HEAD),
        bare("MistralModel"),
        classes_of_last("MistralForSequenceClassification"),
    ],
};

/// What it has besides the words of the family.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Words {
    /// Positions that a query sees, itself among them; null stands for all.
    sliding_window: Option<usize>,
}

/// Hugging Face leaves out what equals its defaults.
impl Default for Words {
    fn default() -> Self {
        Self {
            sliding_window: Some(4096),
        }
    }
}

fn defaults() -> family::Words {
    family::Words {
        max_position_embeddings: 4096 * 32,
        intermediate_size: 14336,
        num_key_value_heads: Some(8),
        ..family::Words::default()
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let own: Words = typed(words, "")?;
    let words = family::Words::read(words, &defaults())?;
    Family {
        bias: false,
        output_bias: false,
        head_norm: None,
        windows: Run::all(words.num_hidden_layers, own.sliding_window),
        feed_forward: words.gated(false)?,
        words,
    }
    .model()
}

fn write(config: &ModelConfig) -> Option<Value> {
    let family = Family::of(config)?;
    let own = Words {
        sliding_window: Run::common(&family.windows)?,
    };
    family.words_with([json!(own)])
}
