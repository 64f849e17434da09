//! An encoder and a decoder that were models of their own, in the words and names of each. Rothe et al. 2020.
//!
//! An encoder of BERT's or RoBERTa's has a pooler, which nothing reads here; it is not kept.

use serde_json::{Value, json};

use super::bert_family::{RENAMED, ROWS};
use super::table::{Operation::Same, Part, Row, Table};
use super::{Architecture, Format, LastState, bert, bert_generation, gpt2, roberta};
use crate::{ModelConfig, Role};

/// What can be the encoder. The first that can express one is what it is saved as.
const ENCODERS: [&Format; 3] = [&bert_generation::FORMAT, &bert::FORMAT, &roberta::FORMAT];

pub(super) const BERT_GENERATION: Format = pair(
    "bert-generation",
    |words| read(words, &bert_generation::FORMAT, "BertGenerationDecoder"),
    |config| write(config, &bert_generation::FORMAT),
    Table {
        parts: &[
            ENCODER,
            Part {
                ours: "stack.",
                theirs: "decoder.bert.",
                rows: ROWS,
            },
            Part {
                ours: "",
                theirs: "decoder.",
                rows: bert_generation::WORD_ROWS,
            },
        ],
        ignored: bert_generation::IGNORED,
        twins: &[("words.bias", "decoder.lm_head.decoder.bias")],
        ..TABLE
    },
);

pub(super) const BERT: Format = pair(
    "bert",
    |words| read(words, &bert::FORMAT, "BertLMHeadModel"),
    |config| write(config, &bert::FORMAT),
    Table {
        parts: &[
            ENCODER,
            Part {
                ours: "stack.",
                theirs: "decoder.bert.",
                rows: ROWS,
            },
            Part {
                ours: "",
                theirs: "decoder.",
                rows: bert::PRETRAINING_ROWS,
            },
        ],
        ignored: bert::IGNORED,
        twins: &[("words.bias", "decoder.cls.predictions.decoder.bias")],
        ..TABLE
    },
);

pub(super) const ROBERTA: Format = pair(
    "roberta",
    |words| read(words, &roberta::FORMAT, "RobertaForCausalLM"),
    |config| write(config, &roberta::FORMAT),
    Table {
        parts: &[
            ENCODER,
            Part {
                ours: "stack.",
                theirs: "decoder.roberta.",
                rows: ROWS,
            },
            Part {
                ours: "",
                theirs: "decoder.",
                rows: roberta::WORD_ROWS,
            },
        ],
        ignored: roberta::IGNORED,
        twins: &[("words.bias", "decoder.lm_head.decoder.bias")],
        ..TABLE
    },
);

pub(super) const GPT2: Format = pair(
    "gpt2",
    |words| read(words, &gpt2::FORMAT, "GPT2LMHeadModel"),
    |config| write(config, &gpt2::FORMAT),
    Table {
        parts: &[
            ENCODER,
            Part {
                ours: "stack.",
                theirs: "decoder.transformer.",
                rows: gpt2::ROWS,
            },
            Part {
                ours: "",
                theirs: "decoder.",
                rows: gpt2::WORD_ROWS,
            },
        ],
        ignored: gpt2::IGNORED,
        ..TABLE
    },
);

const ENCODER: Part = Part {
    ours: "encoder.",
    theirs: "encoder.",
    rows: ROWS,
};

/// What all pairs have in common.
const TABLE: Table = Table {
    parts: &[],
    optional_prefix: "",
    ignored: &[],
    renamed: RENAMED,
    twins: &[],
    zeros: &[],
};

const fn pair(
    decoder: &'static str,
    read: fn(&Value) -> Result<ModelConfig, String>,
    write: fn(&ModelConfig) -> Option<Value>,
    table: Table,
) -> Format {
    Format {
        model_type: "encoder-decoder",
        decoder: Some(decoder),
        read,
        write,
        table,
        group: |_| 1,
        last_state: LastState::Normed,
        architectures: &[Architecture {
            name: "EncoderDecoderModel",
            heads: |_, _| Ok(()),
            rows: BRIDGE_ROWS,
            bare: false,
        }],
    }
}

/// The map between widths that differ, and what an encoder has besides that nothing reads.
#[rustfmt::skip]
const BRIDGE_ROWS: &[Row] = &[
    ("bridge.weight", "enc_to_dec_proj.weight",      Same),
    ("bridge.bias",   "enc_to_dec_proj.bias",        Same),
    ("",              "encoder.pooler.dense.weight", Same),
    ("",              "encoder.pooler.dense.bias",   Same),
];

/// The decoder is read as its class, whatever class it was before.
fn read(words: &Value, decoder: &Format, class: &str) -> Result<ModelConfig, String> {
    if words["is_encoder_decoder"] == false {
        return Err("is_encoder_decoder false is not supported; it must be true".to_owned());
    }
    if words["tie_encoder_decoder"] == true {
        return Err("tie_encoder_decoder true is not supported; it must be false".to_owned());
    }
    let inside = |side: &'static str| move |problem: String| format!("{side}.{problem}");
    let kind = &words["encoder"]["model_type"];
    let known = ENCODERS.iter().find(|it| *kind == it.model_type);
    let Some(format) = known else {
        let known = ENCODERS.map(|it| it.model_type).join(", ");
        return Err(format!(
            "encoder.model_type {kind} is not supported; supported are {known}"
        ));
    };
    let encoder = (format.read)(&words["encoder"]).map_err(inside("encoder"))?;
    if encoder.role == Role::Causal {
        return Err("encoder.is_decoder true is not supported; it must be false".to_owned());
    }
    let mut own = words["decoder"].clone();
    own["architectures"] = json!([class]);
    let (config, _) = decoder.settings(&own).map_err(inside("decoder"))?;
    Ok(ModelConfig {
        encoder: Some(Box::new(encoder)),
        ..config
    })
}

fn write(config: &ModelConfig, decoder: &Format) -> Option<Value> {
    let words_of = |format: &Format, config: &ModelConfig| {
        let mut words = (format.write)(config)?;
        words["model_type"] = json!(format.model_type);
        Some(words)
    };
    let encoder = config.encoder.as_deref()?.canonical();
    let encoder = ENCODERS.iter().find_map(|format| {
        let words = words_of(format, &encoder)?;
        let back = (format.read)(&words).ok()?.canonical();
        (back.without_dropout() == encoder.without_dropout()).then_some(words)
    })?;
    Some(json!({
        "is_encoder_decoder": true,
        "encoder": encoder,
        "decoder": words_of(decoder, config)?,
    }))
}
