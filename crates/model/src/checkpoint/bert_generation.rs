//! BERT made to write: its encoder and its decoder, which may be a pair (`encoder_decoder`). Rothe et al. 2020.

use serde_json::Value;

use super::bert_family::{BertWords, RENAMED, ROWS};
use super::heads::bare;
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState};
use crate::{HeadConfig, LearnedConfig, ModelConfig, PositionsConfig, WordsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "bert-generation",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "bert.",
            rows: ROWS,
        }],
        optional_prefix: "bert.",
        ignored: IGNORED,
        renamed: RENAMED,
        twins: &[("words.bias", "lm_head.decoder.bias")],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        bare("BertGenerationEncoder"),
        Architecture {
            name: "BertGenerationDecoder",
            heads: |words, config| {
                config.head = words_of(words);
                Ok(())
            },
            rows: WORD_ROWS,
            bare: false,
        },
    ],
};

pub(super) const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
];

#[rustfmt::skip]
pub(super) const WORD_ROWS: &[Row] = &[
    ("words.weight", "lm_head.decoder.weight", Same),
    ("words.bias",   "lm_head.bias",           Same),
];

/// Scores of the vocabulary with a bias and without a transform.
fn words_of(words: &Value) -> HeadConfig {
    HeadConfig::Words(WordsConfig {
        tied: words["tie_word_embeddings"].as_bool().unwrap_or(true),
        bias: true,
        ..WordsConfig::default()
    })
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let defaults = BertWords {
        vocab_size: 50358,
        hidden_size: 1024,
        intermediate_size: 4096,
        num_hidden_layers: 24,
        num_attention_heads: 16,
        type_vocab_size: 0,
        ..BertWords::default()
    };
    let words = BertWords::read(words, defaults)?;
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    words.settings(positions, words.max_position_embeddings)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let mut words = serde_json::to_value(BertWords::of(config)?).ok()?;
    words.as_object_mut()?.remove("type_vocab_size");
    Some(words)
}
