//! BERT as Hugging Face writes it. Devlin et al. 2019.

use serde_json::Value;

use super::bert_family::{
    ANSWER_ROWS, BertWords, LABEL_ROWS, RENAMED, ROWS, answers, classes_of_first, labels_of_tokens,
    masked, masked_words, pooled, pooled_first,
};
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState};
use crate::{ClassesConfig, LearnedConfig, ModelConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "bert",
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
        twins: &[("words.bias", "cls.predictions.decoder.bias")],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        Architecture {
            name: "BertModel",
            heads: pooled,
            rows: POOLER_ROWS,
            bare: true,
        },
        Architecture {
            name: "BertForMaskedLM",
            heads: masked,
            rows: PRETRAINING_ROWS,
            bare: false,
        },
        Architecture {
            name: "BertForPreTraining",
            heads: |words, config| {
                masked_words(words, config, None);
                next_sentence(config);
                Ok(())
            },
            rows: PRETRAINING_ROWS,
            bare: false,
        },
        Architecture {
            name: "BertForNextSentencePrediction",
            heads: |_, config| {
                next_sentence(config);
                Ok(())
            },
            rows: PRETRAINING_ROWS,
            bare: false,
        },
        Architecture {
            name: "BertLMHeadModel",
            heads: masked,
            rows: PRETRAINING_ROWS,
            bare: false,
        },
        Architecture {
            name: "BertForSequenceClassification",
            heads: |words, config| classes_of_first(words, config, None),
            rows: CLASSES_ROWS,
            bare: false,
        },
        Architecture {
            name: "BertForTokenClassification",
            heads: labels_of_tokens,
            rows: LABEL_ROWS,
            bare: false,
        },
        Architecture {
            name: "BertForQuestionAnswering",
            heads: answers,
            rows: ANSWER_ROWS,
            bare: false,
        },
    ],
};

/// A buffer of old versions, and copies of what is tied.
pub(super) const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
];

#[rustfmt::skip]
const POOLER_ROWS: &[Row] = &[
    ("pooler.map.weight", "bert.pooler.dense.weight", Same),
    ("pooler.map.bias",   "bert.pooler.dense.bias",   Same),
];

#[rustfmt::skip]
const CLASSES_ROWS: &[Row] = &[
    ("pooler.map.weight",  "bert.pooler.dense.weight", Same),
    ("pooler.map.bias",    "bert.pooler.dense.bias",   Same),
    ("classes.map.weight", "classifier.weight",        Same),
    ("classes.map.bias",   "classifier.bias",          Same),
];

#[rustfmt::skip]
pub(super) const PRETRAINING_ROWS: &[Row] = &[
    ("words.transform.map.weight",  "cls.predictions.transform.dense.weight",     Same),
    ("words.transform.map.bias",    "cls.predictions.transform.dense.bias",       Same),
    ("words.transform.norm.weight", "cls.predictions.transform.LayerNorm.weight", Same),
    ("words.transform.norm.bias",   "cls.predictions.transform.LayerNorm.bias",   Same),
    ("words.weight",                "cls.predictions.decoder.weight",             Same),
    ("words.bias",                  "cls.predictions.bias",                       Same),
    ("pooler.map.weight",           "bert.pooler.dense.weight",                   Same),
    ("pooler.map.bias",             "bert.pooler.dense.bias",                     Same),
    ("classes.map.weight",          "cls.seq_relationship.weight",                Same),
    ("classes.map.bias",            "cls.seq_relationship.bias",                  Same),
];

/// Whether a second sentence follows the first.
pub(super) fn next_sentence(config: &mut ModelConfig) {
    pooled_first(config, None);
    config.classes = Some(ClassesConfig {
        classes: 2,
        bias: true,
        dropout: 0.0,
        teacher: false,
    });
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let words = BertWords::read(words, BertWords::default())?;
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    words.settings(positions, words.max_position_embeddings)
}

fn write(config: &ModelConfig) -> Option<Value> {
    serde_json::to_value(BertWords::of(config)?).ok()
}
