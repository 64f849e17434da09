//! BertGeneration in Hugging Face's format: BERT as an encoder or a decoder, also as a pair (`encoder_decoder`).
//! Rothe et al. 2020.

use serde_json::Value;

use super::bert_family::{BertConfig, RENAMED, ROWS};
use super::heads::base_model;
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::ModelConfig;
use attentive_model::head::{HeadConfig, LmHeadConfig};
use attentive_model::positions::{LearnedConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "bert-generation",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "bert.",
            rows: ROWS,
        }],
        optional_prefix: "bert.",
        ignored: IGNORED,
        renamed: RENAMED,
        aliases: &[("lm_head.bias", "lm_head.decoder.bias")],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        base_model("BertGenerationEncoder"),
        ModelClass {
            name: "BertGenerationDecoder",
            heads: |json, config| {
                config.head = lm_head(json);
                Ok(())
            },
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
    ],
};

pub(super) const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
];

#[rustfmt::skip]
pub(super) const LM_HEAD_ROWS: &[TensorRow] = &[
    ("lm_head.weight", "lm_head.decoder.weight", Same),
    ("lm_head.bias",   "lm_head.bias",           Same),
];

/// An LM head with a bias and without a transform.
fn lm_head(json: &Value) -> HeadConfig {
    HeadConfig::LmHead(LmHeadConfig {
        tied: json["tie_word_embeddings"].as_bool().unwrap_or(true),
        bias: true,
        ..LmHeadConfig::default()
    })
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let defaults = BertConfig {
        vocab_size: 50358,
        hidden_size: 1024,
        intermediate_size: 4096,
        num_hidden_layers: 24,
        num_attention_heads: 16,
        type_vocab_size: 0,
        ..BertConfig::default()
    };
    let hf = BertConfig::read(json, defaults)?;
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    hf.model(positions, hf.max_position_embeddings)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let mut json = serde_json::to_value(BertConfig::of(config)?).ok()?;
    json.as_object_mut()?.remove("type_vocab_size");
    Some(json)
}
