//! Our own format: our settings under `attentive`, our names. For what no Hugging Face architecture can express.

use serde_json::{Value, json};

use super::table::Table;
use super::{Architecture, Format, LastState};
use crate::ModelConfig;

/// The same with a place of its own.
pub(super) static FORMAT_OF_ALL: Format = FORMAT;

pub(super) const FORMAT: Format = Format {
    model_type: "attentive",
    decoder: None,
    read,
    write,
    table: Table {
        parts: &[],
        optional_prefix: "",
        ignored: &[],
        renamed: &[],
        twins: &[],
        zeros: &[],
    },
    group: |_| 1,
    last_state: LastState::Normed,
    architectures: &[Architecture {
        name: "",
        heads: |_, _| Ok(()),
        rows: &[],
        bare: false,
    }],
};

fn read(words: &Value) -> Result<ModelConfig, String> {
    match &words["attentive"] {
        Value::Null => Err("the settings under `attentive` are missing".to_owned()),
        settings => super::json::typed(settings, "attentive"),
    }
}

fn write(config: &ModelConfig) -> Option<Value> {
    Some(json!({ "attentive": config }))
}
