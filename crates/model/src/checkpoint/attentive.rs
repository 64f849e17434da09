//! Our own format: our settings under `attentive`, our names. For what no Hugging Face architecture can express.

use serde_json::{Value, json};

use super::Format;
use super::table::Table;
use crate::ModelConfig;

pub(super) const FORMAT: Format = Format {
    model_type: "attentive",
    architecture: None,
    read,
    write,
    table: Table {
        rows: &[],
        optional_prefix: "",
        ignored: &[],
    },
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
