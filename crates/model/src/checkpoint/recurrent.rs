//! Folders of recurrent encoder-decoders: config.json with our settings under `attentive`, model.safetensors with our names.
//! No other library has such a format.

use std::collections::HashMap;
use std::path::Path;

use burn::tensor::Device;
use serde_json::{Value, json};

use super::save::write_json;
use super::table::{Names, Table};
use super::{
    CheckpointError, SpecialTokens, TensorFile, filled, json as words_of, model_tensors,
    write_tensors,
};
use crate::recurrent::{Recurrent, RecurrentConfig};

/// The `model_type` of its config.json.
pub const RECURRENT_TYPE: &str = "attentive-recurrent";

/// Their names are ours.
static OURS: Table = Table {
    parts: &[],
    optional_prefix: "",
    ignored: &[],
    renamed: &[],
    twins: &[],
    zeros: &[],
};

fn names() -> Names {
    Names {
        table: &OURS,
        heads: &[],
        bare: false,
        known: Vec::new(),
        patches: None,
        head_width: 1,
        group: 1,
        gated: false,
        untied: false,
        width: 0,
    }
}

/// Whether a folder holds a recurrent encoder-decoder rather than a transformer.
pub fn is_recurrent(folder: &Path) -> bool {
    let words = words_of::read(&folder.join("config.json"));
    words.is_ok_and(|words| words["model_type"] == RECURRENT_TYPE)
}

/// The settings of the recurrent encoder-decoder of a folder, and the ids that have a meaning for it.
pub fn describe_recurrent(
    folder: &Path,
) -> Result<(RecurrentConfig, SpecialTokens), CheckpointError> {
    let path = folder.join("config.json");
    if !path.exists() {
        return Err(CheckpointError::NoFolder {
            path: folder.to_owned(),
        });
    }
    let words = words_of::read(&path)?;
    let model_type = words["model_type"].as_str().unwrap_or_default();
    if model_type != RECURRENT_TYPE {
        return Err(CheckpointError::UnknownType {
            path,
            model_type: model_type.to_owned(),
            supported: vec![RECURRENT_TYPE],
        });
    }
    let wrong = |problem: String| CheckpointError::Config {
        path: path.clone(),
        problem,
    };
    let config: RecurrentConfig = match &words["attentive"] {
        Value::Null => Err("the settings under `attentive` are missing".to_owned()),
        settings => words_of::typed(settings, "attentive"),
    }
    .map_err(wrong)?;
    let validated = config.validate();
    validated.map_err(|error| wrong(format!("attentive.{error}")))?;
    let special = SpecialTokens::read(&words, SpecialTokens::default()).map_err(wrong)?;
    Ok((config, special))
}

/// Loads the recurrent encoder-decoder of a folder, and the ids that have a meaning for it.
pub fn load_recurrent(
    folder: &Path,
    device: &Device,
) -> Result<(Recurrent, SpecialTokens), CheckpointError> {
    let (config, special) = describe_recurrent(folder)?;
    let model = Recurrent::new(&config, 0, device).expect("the settings were validated");
    let file = TensorFile::of_folder(folder)?;
    let model = filled(model, &names(), &file, "config.json")?;
    Ok((model, special))
}

/// Saves a recurrent encoder-decoder as a folder.
///
/// Each file is replaced whole or not at all.
pub fn save_recurrent(
    folder: &Path,
    model: &Recurrent,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    let mut words = json!({ "model_type": RECURRENT_TYPE, "attentive": model.config() });
    special.write(&mut words);
    std::fs::create_dir_all(folder).map_err(|source| CheckpointError::Io {
        path: folder.to_owned(),
        source,
    })?;
    write_json(&folder.join("config.json"), &words)?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let tensors = names().write(model_tensors(model));
    write_tensors(&folder.join("model.safetensors"), tensors, metadata)
}
