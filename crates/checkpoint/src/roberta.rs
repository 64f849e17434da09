//! RoBERTa in Hugging Face's format: BERT with other positions and heads. Liu et al. 2019.

use serde_json::Value;

use super::bert_family::{
    BertConfig, QA_ROWS, RENAMED, ROWS, TOKEN_CLASSIFIER_ROWS, pooler, question_answering,
    sequence_classifier, set_mlm_head, token_classifier,
};
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::positions::{LearnedConfig, PositionsConfig};
use attentive_model::{Activation, ModelConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "roberta",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[Section {
            model_prefix: "stack.",
            file_prefix: "roberta.",
            rows: ROWS,
        }],
        optional_prefix: "roberta.",
        ignored: IGNORED,
        renamed: RENAMED,
        aliases: &[("lm_head.bias", "lm_head.decoder.bias")],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        ModelClass {
            name: "RobertaModel",
            heads: pooler,
            rows: POOLER_ROWS,
            base_model: true,
        },
        ModelClass {
            name: "RobertaForMaskedLM",
            heads: mlm_head,
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "RobertaForCausalLM",
            heads: mlm_head,
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "RobertaForSequenceClassification",
            heads: |json, config| sequence_classifier(json, config, None),
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "RobertaForTokenClassification",
            heads: token_classifier,
            rows: TOKEN_CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "RobertaForQuestionAnswering",
            heads: question_answering,
            rows: QA_ROWS,
            base_model: false,
        },
    ],
};

/// A buffer of old versions, and copies of tied weights.
pub(super) const IGNORED: &[&str] = &[
    "embeddings.position_ids",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
];

#[rustfmt::skip]
const POOLER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight", "roberta.pooler.dense.weight", Same),
    ("pooler.projection.bias",   "roberta.pooler.dense.bias",   Same),
];

#[rustfmt::skip]
pub(super) const LM_HEAD_ROWS: &[TensorRow] = &[
    ("lm_head.transform.projection.weight", "lm_head.dense.weight",      Same),
    ("lm_head.transform.projection.bias",   "lm_head.dense.bias",        Same),
    ("lm_head.transform.norm.weight",       "lm_head.layer_norm.weight", Same),
    ("lm_head.transform.norm.bias",         "lm_head.layer_norm.bias",   Same),
    ("lm_head.weight",                      "lm_head.decoder.weight",    Same),
    ("lm_head.bias",                        "lm_head.bias",              Same),
];

#[rustfmt::skip]
pub(super) const CLASSIFIER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight",              "classifier.dense.weight",    Same),
    ("pooler.projection.bias",                "classifier.dense.bias",      Same),
    ("sequence_classifier.projection.weight", "classifier.out_proj.weight", Same),
    ("sequence_classifier.projection.bias",   "classifier.out_proj.bias",   Same),
];

/// The head always has exact GELU, whatever the blocks have.
pub(super) fn mlm_head(json: &Value, config: &mut ModelConfig) -> Result<(), String> {
    set_mlm_head(json, config, Some(Activation::Gelu));
    Ok(())
}

fn defaults() -> BertConfig {
    BertConfig {
        vocab_size: 50265,
        pad_token_id: Some(1),
        ..BertConfig::default()
    }
}

/// Positions that start after the row of the pad token, and the remaining length.
pub(super) fn offset_positions(hf: &BertConfig) -> Result<(PositionsConfig, usize), String> {
    let padding = hf.pad_token_id.unwrap_or(1);
    let offset = padding as usize + 1;
    let length = hf.max_position_embeddings.checked_sub(offset);
    let length = length.filter(|length| *length > 0).ok_or(format!(
        "max_position_embeddings {} leaves no positions after pad_token_id {padding}; use more",
        hf.max_position_embeddings
    ))?;
    let positions = PositionsConfig::Learned(LearnedConfig {
        offset,
        padding: Some(padding),
    });
    Ok((positions, length))
}

/// The keys for positions of [`offset_positions`].
pub(super) fn with_offset_positions(hf: BertConfig, config: &ModelConfig) -> Option<BertConfig> {
    let PositionsConfig::Learned(learned) = &config.stack.positions else {
        return None;
    };
    Some(BertConfig {
        max_position_embeddings: config.stack.length + learned.offset,
        pad_token_id: Some(learned.padding?),
        ..hf
    })
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let hf = BertConfig::read(json, defaults())?;
    let (positions, length) = offset_positions(&hf)?;
    hf.model(positions, length)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let hf = with_offset_positions(BertConfig::of(config)?, config)?;
    serde_json::to_value(hf).ok()
}
