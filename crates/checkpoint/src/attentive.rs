//! Our own format, for models that no Hugging Face architecture can express: our settings under `attentive`, our tensor names.

use serde_json::{Value, json};

use super::name_table::NameTable;
use super::{Format, LastHiddenState, ModelClass};
use attentive_model::ModelConfig;

/// [`FORMAT`] as a static.
pub(super) static FALLBACK: Format = FORMAT;

pub(super) const FORMAT: Format = Format {
    model_type: "attentive",
    decoder: None,
    read,
    write,
    table: NameTable {
        sections: &[],
        optional_prefix: "",
        ignored: &[],
        renamed: &[],
        aliases: &[],
        zero_if_missing: &[],
    },
    group: |_| 1,
    last_hidden_state: LastHiddenState::AfterFinalNorm,
    architectures: &[ModelClass {
        name: "",
        heads: |_, _| Ok(()),
        rows: &[],
        base_model: false,
    }],
};

fn read(json: &Value) -> Result<ModelConfig, String> {
    match &json["attentive"] {
        Value::Null => Err("the settings under `attentive` are missing".to_owned()),
        settings => super::config_json::typed(settings, "attentive"),
    }
}

fn write(config: &ModelConfig) -> Option<Value> {
    Some(json!({ "attentive": config }))
}
