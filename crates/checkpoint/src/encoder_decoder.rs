//! `EncoderDecoderModel`: an encoder and a decoder from separate models, each with its own config and tensor names.
//! Rothe et al. 2020.
//!
//! The pooler of a BERT or RoBERTa encoder is unused; it is neither loaded nor saved.

use serde_json::{Value, json};

use super::bert_family::{RENAMED, ROWS};
use super::name_table::{NameTable, Section, TensorRow, Transform::Same};
use super::{Format, LastHiddenState, ModelClass, bert, bert_generation, gpt2, roberta};
use attentive_model::ModelConfig;
use attentive_model::attention::Role;

/// The formats of encoders. An encoder is saved in the first that can express it.
const ENCODERS: [&Format; 3] = [&bert_generation::FORMAT, &bert::FORMAT, &roberta::FORMAT];

/// The sections of an encoder and of a decoder with this prefix, rows of its stack and rows of its head.
macro_rules! decoder_sections {
    ($prefix:literal, $stack:path, $head:path) => {
        &[
            ENCODER,
            Section {
                model_prefix: "stack.",
                file_prefix: $prefix,
                rows: $stack,
            },
            Section {
                model_prefix: "",
                file_prefix: "decoder.",
                rows: $head,
            },
        ]
    };
}

pub(super) const BERT_GENERATION: Format = pair(
    "bert-generation",
    |json| read(json, &bert_generation::FORMAT, "BertGenerationDecoder"),
    |config| write(config, &bert_generation::FORMAT),
    NameTable {
        sections: decoder_sections!("decoder.bert.", ROWS, bert_generation::LM_HEAD_ROWS),
        ignored: bert_generation::IGNORED,
        aliases: &[("lm_head.bias", "decoder.lm_head.decoder.bias")],
        ..TABLE
    },
);

pub(super) const BERT: Format = pair(
    "bert",
    |json| read(json, &bert::FORMAT, "BertLMHeadModel"),
    |config| write(config, &bert::FORMAT),
    NameTable {
        sections: decoder_sections!("decoder.bert.", ROWS, bert::PRETRAINING_ROWS),
        ignored: bert::IGNORED,
        aliases: &[("lm_head.bias", "decoder.cls.predictions.decoder.bias")],
        ..TABLE
    },
);

pub(super) const ROBERTA: Format = pair(
    "roberta",
    |json| read(json, &roberta::FORMAT, "RobertaForCausalLM"),
    |config| write(config, &roberta::FORMAT),
    NameTable {
        sections: decoder_sections!("decoder.roberta.", ROWS, roberta::LM_HEAD_ROWS),
        ignored: roberta::IGNORED,
        aliases: &[("lm_head.bias", "decoder.lm_head.decoder.bias")],
        ..TABLE
    },
);

pub(super) const GPT2: Format = pair(
    "gpt2",
    |json| read(json, &gpt2::FORMAT, "GPT2LMHeadModel"),
    |config| write(config, &gpt2::FORMAT),
    NameTable {
        sections: decoder_sections!("decoder.transformer.", gpt2::ROWS, gpt2::LM_HEAD_ROWS),
        ignored: gpt2::IGNORED,
        ..TABLE
    },
);

const ENCODER: Section = Section {
    model_prefix: "encoder.",
    file_prefix: "encoder.",
    rows: ROWS,
};

/// What all pairs share.
const TABLE: NameTable = NameTable {
    sections: &[],
    optional_prefix: "",
    ignored: &[],
    renamed: RENAMED,
    aliases: &[],
    zero_if_missing: &[],
};

const fn pair(
    decoder: &'static str,
    read: fn(&Value) -> Result<ModelConfig, String>,
    write: fn(&ModelConfig) -> Option<Value>,
    table: NameTable,
) -> Format {
    Format {
        model_type: "encoder-decoder",
        decoder: Some(decoder),
        read,
        write,
        table,
        group: |_| 1,
        last_hidden_state: LastHiddenState::AfterFinalNorm,
        architectures: &[ModelClass {
            name: "EncoderDecoderModel",
            heads: |_, _| Ok(()),
            rows: ENC_TO_DEC_ROWS,
            base_model: false,
        }],
    }
}

/// The projection between different widths, and the encoder's unused pooler.
#[rustfmt::skip]
const ENC_TO_DEC_ROWS: &[TensorRow] = &[
    ("bridge.weight", "enc_to_dec_proj.weight",      Same),
    ("bridge.bias",   "enc_to_dec_proj.bias",        Same),
    ("",              "encoder.pooler.dense.weight", Same),
    ("",              "encoder.pooler.dense.bias",   Same),
];

/// The decoder is read as `class`, whatever class it was saved as.
fn read(json: &Value, decoder: &Format, class: &str) -> Result<ModelConfig, String> {
    if json["is_encoder_decoder"] == false {
        return Err("is_encoder_decoder false is not supported; it must be true".to_owned());
    }
    if json["tie_encoder_decoder"] == true {
        return Err("tie_encoder_decoder true is not supported; it must be false".to_owned());
    }
    let within = |side: &'static str| move |problem: String| format!("{side}.{problem}");
    let kind = &json["encoder"]["model_type"];
    let known = ENCODERS.iter().find(|it| *kind == it.model_type);
    let Some(format) = known else {
        let known = ENCODERS.map(|it| it.model_type).join(", ");
        return Err(format!(
            "encoder.model_type {kind} is not supported; supported are {known}"
        ));
    };
    let encoder = (format.read)(&json["encoder"]).map_err(within("encoder"))?;
    if encoder.stack.role == Role::Causal {
        return Err("encoder.is_decoder true is not supported; it must be false".to_owned());
    }
    let mut decoder_json = json["decoder"].clone();
    decoder_json["architectures"] = json!([class]);
    let (config, _) = decoder.parse(&decoder_json).map_err(within("decoder"))?;
    Ok(config.with_encoder(encoder.stack))
}

fn write(config: &ModelConfig, decoder: &Format) -> Option<Value> {
    let nested_json = |format: &Format, config: &ModelConfig| {
        let mut json = (format.write)(config)?;
        json["model_type"] = json!(format.model_type);
        Some(json)
    };
    let encoder = config.encoder.as_deref()?.clone();
    let encoder = ModelConfig::new(encoder).canonical();
    let encoder = ENCODERS.iter().find_map(|format| {
        let json = nested_json(format, &encoder)?;
        let parsed = (format.read)(&json).ok()?.canonical();
        (parsed.without_dropout() == encoder.without_dropout()).then_some(json)
    })?;
    Some(json!({
        "is_encoder_decoder": true,
        "encoder": encoder,
        "decoder": nested_json(decoder, config)?,
    }))
}
