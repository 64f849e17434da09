//! BERT in Hugging Face's format. Devlin et al. 2019.

use serde_json::Value;

use super::bert_family::{
    BertConfig, QA_ROWS, RENAMED, ROWS, TOKEN_CLASSIFIER_ROWS, mlm_head, next_sentence_head,
    pooler, pretraining_heads, question_answering, sequence_classifier, token_classifier,
};
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::ModelConfig;
use attentive_model::positions::{LearnedConfig, PositionsConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "bert",
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
        aliases: &[("lm_head.bias", "cls.predictions.decoder.bias")],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        ModelClass {
            name: "BertModel",
            heads: pooler,
            rows: POOLER_ROWS,
            base_model: true,
        },
        ModelClass {
            name: "BertForMaskedLM",
            heads: mlm_head,
            rows: PRETRAINING_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BertForPreTraining",
            heads: pretraining_heads,
            rows: PRETRAINING_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BertForNextSentencePrediction",
            heads: next_sentence_head,
            rows: PRETRAINING_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BertLMHeadModel",
            heads: mlm_head,
            rows: PRETRAINING_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BertForSequenceClassification",
            heads: |json, config| sequence_classifier(json, config, None),
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BertForTokenClassification",
            heads: token_classifier,
            rows: TOKEN_CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "BertForQuestionAnswering",
            heads: question_answering,
            rows: QA_ROWS,
            base_model: false,
        },
    ],
};

/// A buffer of old versions, and copies of tied weights.
pub(super) const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
];

#[rustfmt::skip]
const POOLER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight", "bert.pooler.dense.weight", Same),
    ("pooler.projection.bias",   "bert.pooler.dense.bias",   Same),
];

#[rustfmt::skip]
const CLASSIFIER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight",              "bert.pooler.dense.weight", Same),
    ("pooler.projection.bias",                "bert.pooler.dense.bias",   Same),
    ("sequence_classifier.projection.weight", "classifier.weight",        Same),
    ("sequence_classifier.projection.bias",   "classifier.bias",          Same),
];

#[rustfmt::skip]
pub(super) const PRETRAINING_ROWS: &[TensorRow] = &[
    ("lm_head.transform.projection.weight",   "cls.predictions.transform.dense.weight",     Same),
    ("lm_head.transform.projection.bias",     "cls.predictions.transform.dense.bias",       Same),
    ("lm_head.transform.norm.weight",         "cls.predictions.transform.LayerNorm.weight", Same),
    ("lm_head.transform.norm.bias",           "cls.predictions.transform.LayerNorm.bias",   Same),
    ("lm_head.weight",                        "cls.predictions.decoder.weight",             Same),
    ("lm_head.bias",                          "cls.predictions.bias",                       Same),
    ("pooler.projection.weight",              "bert.pooler.dense.weight",                   Same),
    ("pooler.projection.bias",                "bert.pooler.dense.bias",                     Same),
    ("sequence_classifier.projection.weight", "cls.seq_relationship.weight",                Same),
    ("sequence_classifier.projection.bias",   "cls.seq_relationship.bias",                  Same),
];

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf = BertConfig::read(json, BertConfig::default())?;
    let positions = PositionsConfig::Learned(LearnedConfig::default());
    hf.model(positions, hf.max_position_embeddings)
}

fn write(config: &ModelConfig) -> Option<Value> {
    serde_json::to_value(BertConfig::of(config)?).ok()
}
