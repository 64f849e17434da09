//! BERT made to write: its encoder, its decoder, and the pair of both. Rothe et al. 2020.

use serde_json::{Value, json};

use super::bert_family::{BertWords, RENAMED, ROWS};
use super::heads::bare;
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState};
use crate::{HeadConfig, LearnedConfig, ModelConfig, PositionsConfig, Role, WordsConfig};

/// The encoder or the decoder alone.
pub(super) const ALONE: Format = Format {
    model_type: "bert-generation",
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
            rows: &[
                ("words.weight", "lm_head.decoder.weight", Same),
                ("words.bias", "lm_head.bias", Same),
            ],
            bare: false,
        },
    ],
};

/// An encoder and the decoder that looks at it.
pub(super) const PAIR: Format = Format {
    model_type: "encoder-decoder",
    read: read_pair,
    write: write_pair,
    table: Table {
        parts: &[
            Part {
                ours: "stack.",
                theirs: "decoder.bert.",
                rows: ROWS,
            },
            Part {
                ours: "encoder.",
                theirs: "encoder.",
                rows: ROWS,
            },
        ],
        optional_prefix: "",
        ignored: IGNORED,
        renamed: RENAMED,
        twins: &[("words.bias", "decoder.lm_head.decoder.bias")],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[Architecture {
        name: "EncoderDecoderModel",
        heads: |_, _| Ok(()),
        rows: PAIR_ROWS,
        bare: false,
    }],
};

const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
];

#[rustfmt::skip]
const PAIR_ROWS: &[Row] = &[
    ("bridge.weight", "enc_to_dec_proj.weight",         Same),
    ("bridge.bias",   "enc_to_dec_proj.bias",           Same),
    ("words.weight",  "decoder.lm_head.decoder.weight", Same),
    ("words.bias",    "decoder.lm_head.bias",           Same),
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

fn read_pair(words: &Value) -> Result<ModelConfig, String> {
    let part = |name: &str| -> Result<ModelConfig, String> {
        let words = &words[name];
        if words["model_type"] != ALONE.model_type {
            return Err(format!(
                "{name}.model_type {} is not supported; supported is {:?}",
                words["model_type"], ALONE.model_type
            ));
        }
        read(words).map_err(|problem| format!("{name}.{problem}"))
    };
    let encoder = part("encoder")?;
    if encoder.role == Role::Causal {
        return Err("encoder.is_decoder true is not supported; it must be false".to_owned());
    }
    Ok(ModelConfig {
        head: words_of(&words["decoder"]),
        encoder: Some(Box::new(encoder)),
        ..part("decoder")?
    })
}

fn write_pair(config: &ModelConfig) -> Option<Value> {
    let part = |config: &ModelConfig| {
        let mut words = write(config)?;
        words["model_type"] = json!(ALONE.model_type);
        Some(words)
    };
    let encoder = part(config.encoder.as_ref()?)?;
    Some(json!({
        "is_encoder_decoder": true,
        "encoder": encoder,
        "decoder": part(config)?,
    }))
}
