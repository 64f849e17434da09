//! Longformer as Hugging Face writes it: RoBERTa with a window around each token and global tokens. Beltagy et al. 2020.
//!
//! A text is filled up to a multiple of the window there, which changes no number, and is not done here.

use serde_json::{Value, json};

use super::bert_family::{
    ANSWER_ROWS, BertWords, LABEL_ROWS, RENAMED, ROWS, answers, classes_of_first, labels_of_tokens,
    pooled,
};
use super::heads::refuse_unless;
use super::json::typed;
use super::roberta::{CLASSES_ROWS, IGNORED, WORD_ROWS, counted, masked, with_counted};
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState};
use crate::checks::MOST_BLOCKS;
use crate::{AttentionConfig, BlockConfig, GlobalsConfig, LongformerConfig, ModelConfig};

pub(super) const FORMAT: Format = Format {
    model_type: "longformer",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[
            Part {
                ours: "stack.",
                theirs: "longformer.",
                rows: ROWS,
            },
            Part {
                ours: "stack.",
                theirs: "longformer.",
                rows: GLOBAL_ROWS,
            },
        ],
        optional_prefix: "longformer.",
        ignored: IGNORED,
        renamed: RENAMED,
        twins: &[("words.bias", "lm_head.decoder.bias")],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[
        Architecture {
            name: "LongformerModel",
            heads: pooled,
            rows: POOLER_ROWS,
            bare: true,
        },
        Architecture {
            name: "LongformerForMaskedLM",
            heads: masked,
            rows: WORD_ROWS,
            bare: false,
        },
        Architecture {
            name: "LongformerForSequenceClassification",
            heads: |words, config| {
                config.globals = Some(GlobalsConfig::First);
                classes_of_first(words, config, None)
            },
            rows: CLASSES_ROWS,
            bare: false,
        },
        Architecture {
            name: "LongformerForTokenClassification",
            heads: labels_of_tokens,
            rows: LABEL_ROWS,
            bare: false,
        },
        Architecture {
            name: "LongformerForQuestionAnswering",
            heads: |words, config| {
                config.globals = Some(GlobalsConfig::Before(separator(words)?));
                answers(words, config)
            },
            rows: ANSWER_ROWS,
            bare: false,
        },
    ],
};

#[rustfmt::skip] // A table is read in columns.
const GLOBAL_ROWS: &[Row] = &[
    ("blocks.{layer}.attention.body.global_query.weight", "encoder.layer.{layer}.attention.self.query_global.weight", Same),
    ("blocks.{layer}.attention.body.global_query.bias",   "encoder.layer.{layer}.attention.self.query_global.bias",   Same),
    ("blocks.{layer}.attention.body.global_key.weight",   "encoder.layer.{layer}.attention.self.key_global.weight",   Same),
    ("blocks.{layer}.attention.body.global_key.bias",     "encoder.layer.{layer}.attention.self.key_global.bias",     Same),
    ("blocks.{layer}.attention.body.global_value.weight", "encoder.layer.{layer}.attention.self.value_global.weight", Same),
    ("blocks.{layer}.attention.body.global_value.bias",   "encoder.layer.{layer}.attention.self.value_global.bias",   Same),
];

#[rustfmt::skip]
const POOLER_ROWS: &[Row] = &[
    ("pooler.map.weight", "longformer.pooler.dense.weight", Same),
    ("pooler.map.bias",   "longformer.pooler.dense.bias",   Same),
];

fn defaults() -> BertWords {
    BertWords {
        pad_token_id: Some(1),
        ..BertWords::default()
    }
}

/// What ends a question.
fn separator(words: &Value) -> Result<u32, String> {
    match &words["sep_token_id"] {
        Value::Null => Ok(2),
        id => typed(id, "sep_token_id"),
    }
}

/// The window of each of `layers`: one number for all of them, or a list.
fn windows(words: &Value, layers: usize) -> Result<Vec<usize>, String> {
    let key = "attention_window";
    if layers > MOST_BLOCKS {
        return Err(format!(
            "num_hidden_layers {layers} is out of range; use 1 to {MOST_BLOCKS}"
        ));
    }
    let windows: Vec<usize> = match &words[key] {
        Value::Null => vec![512; layers],
        Value::Array(_) => typed(&words[key], key)?,
        window => vec![typed(window, key)?; layers],
    };
    match windows.len() == layers {
        true => Ok(windows),
        false => Err(format!(
            "{key} has {} numbers and num_hidden_layers is {layers}; there must be as many",
            windows.len()
        )),
    }
}

fn read(words: &Value) -> Result<ModelConfig, String> {
    let bert = BertWords::read(words, defaults())?;
    refuse_unless(&[("is_decoder", bert.is_decoder, false)])?;
    let (positions, length) = counted(&bert)?;
    let mut config = bert.settings(positions, length)?;
    let block = config.blocks.remove(0);
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
    let windows = windows(words, bert.num_hidden_layers)?;
    config.blocks = windows.into_iter().map(layer).collect();
    Ok(config)
}

fn write(config: &ModelConfig) -> Option<Value> {
    let windows = config.layer_blocks().map(|block| match &block.attention {
        AttentionConfig::Longformer(attention) => Some(attention.window),
        _ => None,
    });
    let windows: Vec<usize> = windows.collect::<Option<_>>()?;
    // All but the windows is the same in every block, or reading it back will show that it is not.
    let alike = ModelConfig {
        blocks: vec![BlockConfig {
            repeat: config.stored_layers(),
            ..config.blocks.first()?.clone()
        }],
        ..config.clone()
    };
    let words = with_counted(BertWords::of(&alike)?, config)?;
    let mut words = serde_json::to_value(words).ok()?;
    words["attention_window"] = json!(windows);
    if let Some(GlobalsConfig::Before(separator)) = config.globals {
        words["sep_token_id"] = json!(separator);
    }
    Some(words)
}
