//! Longformer in Hugging Face's format: RoBERTa with sliding windows and global tokens. Beltagy et al. 2020.
//!
//! Hugging Face pads to a multiple of the window, which does not change the output; this implementation does not pad.

use serde_json::{Value, json};

use super::bert_family::{
    BertConfig, QA_ROWS, RENAMED, ROWS, TOKEN_CLASSIFIER_ROWS, pooler, question_answering,
    sequence_classifier, token_classifier,
};
use super::config_json::typed;
use super::heads::refuse_unless;
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::roberta::{
    CLASSIFIER_ROWS, IGNORED, LM_HEAD_ROWS, mlm_head, offset_positions, with_offset_positions,
};
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::attention::{AttentionConfig, LongformerConfig};
use attentive_model::block::BlockConfig;
use attentive_model::checks::MAX_BLOCKS;
use attentive_model::{GlobalsConfig, ModelConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "longformer",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[
            Section {
                model_prefix: "stack.",
                file_prefix: "longformer.",
                rows: ROWS,
            },
            Section {
                model_prefix: "stack.",
                file_prefix: "longformer.",
                rows: GLOBAL_ROWS,
            },
        ],
        optional_prefix: "longformer.",
        ignored: IGNORED,
        renamed: RENAMED,
        aliases: &[("lm_head.bias", "lm_head.decoder.bias")],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[
        ModelClass {
            name: "LongformerModel",
            heads: pooler,
            rows: POOLER_ROWS,
            base_model: true,
        },
        ModelClass {
            name: "LongformerForMaskedLM",
            heads: mlm_head,
            rows: LM_HEAD_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "LongformerForSequenceClassification",
            heads: |json, config| {
                config.stack.globals = Some(GlobalsConfig::First);
                sequence_classifier(json, config, None)
            },
            rows: CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "LongformerForTokenClassification",
            heads: token_classifier,
            rows: TOKEN_CLASSIFIER_ROWS,
            base_model: false,
        },
        ModelClass {
            name: "LongformerForQuestionAnswering",
            heads: |json, config| {
                config.stack.globals = Some(GlobalsConfig::Before(separator(json)?));
                question_answering(json, config)
            },
            rows: QA_ROWS,
            base_model: false,
        },
    ],
};

#[rustfmt::skip] // Keeps the columns aligned.
const GLOBAL_ROWS: &[TensorRow] = &[
    ("blocks.{layer}.attention.body.global_query.weight", "encoder.layer.{layer}.attention.self.query_global.weight", Same),
    ("blocks.{layer}.attention.body.global_query.bias",   "encoder.layer.{layer}.attention.self.query_global.bias",   Same),
    ("blocks.{layer}.attention.body.global_key.weight",   "encoder.layer.{layer}.attention.self.key_global.weight",   Same),
    ("blocks.{layer}.attention.body.global_key.bias",     "encoder.layer.{layer}.attention.self.key_global.bias",     Same),
    ("blocks.{layer}.attention.body.global_value.weight", "encoder.layer.{layer}.attention.self.value_global.weight", Same),
    ("blocks.{layer}.attention.body.global_value.bias",   "encoder.layer.{layer}.attention.self.value_global.bias",   Same),
];

#[rustfmt::skip]
const POOLER_ROWS: &[TensorRow] = &[
    ("pooler.projection.weight", "longformer.pooler.dense.weight", Same),
    ("pooler.projection.bias",   "longformer.pooler.dense.bias",   Same),
];

fn defaults() -> BertConfig {
    BertConfig {
        pad_token_id: Some(1),
        ..BertConfig::default()
    }
}

/// The token that ends the question.
fn separator(json: &Value) -> Result<u32, String> {
    match &json["sep_token_id"] {
        Value::Null => Ok(2),
        id => typed(id, "sep_token_id"),
    }
}

/// The window of each layer: one for all, or a list.
fn windows(json: &Value, layers: usize) -> Result<Vec<usize>, String> {
    let key = "attention_window";
    if layers > MAX_BLOCKS {
        return Err(format!(
            "num_hidden_layers {layers} is out of range; use 1 to {MAX_BLOCKS}"
        ));
    }
    let windows: Vec<usize> = match &json[key] {
        Value::Null => vec![512; layers],
        Value::Array(_) => typed(&json[key], key)?,
        window => vec![typed(window, key)?; layers],
    };
    match windows.len() == layers {
        true => Ok(windows),
        false => Err(format!(
            "{key} has {} values and num_hidden_layers is {layers}; give one value per layer",
            windows.len()
        )),
    }
}

fn read(json: &Value) -> Result<ModelConfig, String> {
    let bert = BertConfig::read(json, defaults())?;
    refuse_unless(&[("is_decoder", bert.is_decoder, false)])?;
    let (positions, length) = offset_positions(&bert)?;
    let mut config = bert.model(positions, length)?;
    let block = config.stack.blocks.remove(0);
    let layer = |window: usize| BlockConfig {
        repeat: 1,
        attention: AttentionConfig::Longformer(LongformerConfig {
            window,
            dilation: 1,
            globals: 0,
            heads: bert.num_attention_heads,
            key_value_heads: None,
            head_width: None,
            dropout: bert.attention_probs_dropout_prob,
            bias: true,
            output_bias: true,
            head_norm: None,
        }),
        ..block.clone()
    };
    let windows = windows(json, bert.num_hidden_layers)?;
    config.stack.blocks = windows.into_iter().map(layer).collect();
    Ok(config)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let windows = config
        .stack
        .stored_blocks()
        .map(|block| match &block.attention {
            AttentionConfig::Longformer(attention) => Some(attention.window),
            _ => None,
        });
    let windows: Vec<usize> = windows.collect::<Option<_>>()?;
    // Only windows may differ between blocks; saving reads the result back and finds other differences.
    let mut uniform = config.clone();
    uniform.stack.blocks = vec![BlockConfig {
        repeat: config.stack.stored_layers(),
        ..config.stack.blocks.first()?.clone()
    }];
    let hf = with_offset_positions(BertConfig::of(&uniform)?, config)?;
    let mut json = serde_json::to_value(hf).ok()?;
    json["attention_window"] = json!(windows);
    if let Some(GlobalsConfig::Before(separator)) = config.stack.globals {
        json["sep_token_id"] = json!(separator);
    }
    Some(json)
}
