//! Folders of recurrent encoder-decoders: config.json with our settings under `attentive`, model.safetensors with our
//! parameter names. No other library has such a format.

use std::collections::HashMap;
use std::path::Path;

use burn::tensor::Device;
use serde_json::{Value, json};

use super::load::load_weights;
use super::name_table::{NameTable, TensorNames};
use super::save::write_json;
use super::{CheckpointError, TensorFile, config_json, model_tensors, write_tensors};
use attentive_generation::SpecialTokens;
use attentive_recurrent::{Recurrent, RecurrentConfig};

/// The `model_type` in config.json.
pub const RECURRENT_TYPE: &str = "attentive-recurrent";

/// Files have the model's own names.
static TABLE: NameTable = NameTable {
    sections: &[],
    optional_prefix: "",
    ignored: &[],
    renamed: &[],
    aliases: &[],
    zero_if_missing: &[],
};

fn names() -> TensorNames {
    TensorNames {
        table: &TABLE,
        heads: &[],
        base_model: false,
        known: Vec::new(),
        patches: None,
        head_width: 1,
        group: 1,
        gated: false,
        untied: false,
        ignores_heads: false,
        width: 0,
    }
}

/// Whether a folder holds a recurrent encoder-decoder rather than a transformer.
pub fn is_recurrent(folder: &Path) -> bool {
    let json = config_json::read(&folder.join("config.json"));
    json.is_ok_and(|json| json["model_type"] == RECURRENT_TYPE)
}

/// Describes the recurrent encoder-decoder of a folder: its config and special token ids.
pub fn describe_recurrent(
    folder: &Path,
) -> Result<(RecurrentConfig, SpecialTokens), CheckpointError> {
    let path = folder.join("config.json");
    if !path.exists() {
        return Err(CheckpointError::NoFolder {
            path: folder.to_owned(),
        });
    }
    let json = config_json::read(&path)?;
    let model_type = json["model_type"].as_str().unwrap_or_default();
    if model_type != RECURRENT_TYPE {
        return Err(CheckpointError::UnknownType {
            path,
            model_type: model_type.to_owned(),
            supported: vec![RECURRENT_TYPE],
        });
    }
    let config_error = |problem: String| CheckpointError::Config {
        path: path.clone(),
        problem,
    };
    let config: RecurrentConfig = match &json["attentive"] {
        Value::Null => Err("the settings under `attentive` are missing".to_owned()),
        settings => config_json::typed(settings, "attentive"),
    }
    .map_err(config_error)?;
    let validated = config.validate();
    validated.map_err(|error| config_error(format!("attentive.{error}")))?;
    let special = SpecialTokens::read(&json, SpecialTokens::default()).map_err(config_error)?;
    Ok((config, special))
}

/// Loads the recurrent encoder-decoder of a folder, and its special token ids.
pub fn load_recurrent(
    folder: &Path,
    device: &Device,
) -> Result<(Recurrent, SpecialTokens), CheckpointError> {
    let (config, special) = describe_recurrent(folder)?;
    let model = Recurrent::new(&config, 0, device).expect("the config was validated");
    let file = TensorFile::from_folder(folder)?;
    let model = load_weights(model, &names(), &file, "config.json")?;
    Ok((model, special))
}

/// Saves a recurrent encoder-decoder as a folder.
///
/// Each file is replaced atomically.
pub fn save_recurrent(
    folder: &Path,
    model: &Recurrent,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    let mut json = json!({ "model_type": RECURRENT_TYPE, "attentive": model.config() });
    special.write(&mut json);
    std::fs::create_dir_all(folder).map_err(|source| CheckpointError::Io {
        path: folder.to_owned(),
        source,
    })?;
    write_json(&folder.join("config.json"), &json)?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let tensors = names().write(model_tensors(model));
    write_tensors(&folder.join("model.safetensors"), tensors, metadata)
}
