//! RoBERTa as Hugging Face writes it: BERT with other positions and heads. Liu et al. 2019.

use serde_json::Value;

use super::bert_family::{
    ANSWER_ROWS, BertWords, LABEL_ROWS, RENAMED, ROWS, answers, classes_of_first, labels_of_tokens,
    masked_words, pooled,
};
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState};
use crate::{Activation, LearnedConfig, ModelConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "roberta",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[Part {
            ours: "stack.",
            theirs: "roberta.",
            rows: ROWS,
        }],
        optional_prefix: "roberta.",
        ignored: IGNORED,
        renamed: RENAMED,
        twins: &[("words.bias", "lm_head.decoder.bias")],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        Architecture {
            name: "RobertaModel",
            heads: pooled,
            rows: POOLER_ROWS,
            bare: true,
        },
        Architecture {
            name: "RobertaForMaskedLM",
            heads: masked,
            rows: WORD_ROWS,
            bare: false,
        },
        Architecture {
            name: "RobertaForCausalLM",
            heads: masked,
            rows: WORD_ROWS,
            bare: false,
        },
        Architecture {
            name: "RobertaForSequenceClassification",
            heads: |words, config| classes_of_first(words, config, None),
            rows: CLASSES_ROWS,
            bare: false,
        },
        Architecture {
            name: "RobertaForTokenClassification",
            heads: labels_of_tokens,
            rows: LABEL_ROWS,
            bare: false,
        },
        Architecture {
            name: "RobertaForQuestionAnswering",
            heads: answers,
            rows: ANSWER_ROWS,
            bare: false,
        },
    ],
};

/// A buffer of old versions, and copies of what is tied.
pub(super) const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
];

#[rustfmt::skip]
const POOLER_ROWS: &[Row] = &[
    ("pooler.map.weight", "roberta.pooler.dense.weight", Same),
    ("pooler.map.bias",   "roberta.pooler.dense.bias",   Same),
];

#[rustfmt::skip]
pub(super) const WORD_ROWS: &[Row] = &[
    ("words.transform.map.weight",  "lm_head.dense.weight",      Same),
    ("words.transform.map.bias",    "lm_head.dense.bias",        Same),
    ("words.transform.norm.weight", "lm_head.layer_norm.weight", Same),
    ("words.transform.norm.bias",   "lm_head.layer_norm.bias",   Same),
    ("words.weight",                "lm_head.decoder.weight",    Same),
    ("words.bias",                  "lm_head.bias",              Same),
];

#[rustfmt::skip]
pub(super) const CLASSES_ROWS: &[Row] = &[
    ("pooler.map.weight",  "classifier.dense.weight",    Same),
    ("pooler.map.bias",    "classifier.dense.bias",      Same),
    ("classes.map.weight", "classifier.out_proj.weight", Same),
    ("classes.map.bias",   "classifier.out_proj.bias",   Same),
];

/// The head's GELU is exact, whatever the blocks have.
pub(super) fn masked(words: &Value, config: &mut ModelConfig) -> Result<(), String> {
    masked_words(words, config, Some(Activation::Gelu));
    Ok(())
}

fn defaults() -> BertWords {
    BertWords {
        vocab_size: 50265,
        pad_token_id: Some(1),
        ..BertWords::default()
    }
}

/// Positions are counted from the row after that of padding.
pub(super) fn counted(words: &BertWords) -> Result<(PositionsConfig, usize), String> {
    let padding = words.pad_token_id.unwrap_or(1);
    let offset = padding as usize + 1;
    let length = words.max_position_embeddings.checked_sub(offset);
    let length = length.filter(|length| *length > 0).ok_or(format!(
        "max_position_embeddings {} leaves no place after pad_token_id {padding}; use more",
        words.max_position_embeddings
    ))?;
    let positions = PositionsConfig::Learned(LearnedConfig {
        offset,
        padding: Some(padding),
    });
    Ok((positions, length))
}

/// The words of positions that are counted so.
pub(super) fn with_counted(words: BertWords, config: &ModelConfig) -> Option<BertWords> {
    let PositionsConfig::Learned(learned) = &config.positions else {
        return None;
    };
    Some(BertWords {
        max_position_embeddings: config.length + learned.offset,
        pad_token_id: Some(learned.padding?),
        ..words
    })
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let words = BertWords::read(words, defaults())?;
    let (positions, length) = counted(&words)?;
    words.settings(positions, length)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let words = with_counted(BertWords::of(config)?, config)?;
    serde_json::to_value(words).ok()
}
