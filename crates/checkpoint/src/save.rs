//! Saving model folders: config.json, generation_config.json, and weights in one file or in shards.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::tensor::{DType, TensorData};
use serde_json::{Value, json};

use super::format::{SerializedConfig, choose_format};
use super::{
    CheckpointError, Description, attentive, config_json, model_tensors, replace_file,
    write_tensors,
};
use attentive_generation::{GenerationSettings, SpecialTokens};
use attentive_model::{Model, ModelConfig};

/// How a model is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// The format of config.json and of tensor names.
    pub format: SaveFormat,
    /// The dtype of the weights.
    pub dtype: SaveDType,
    /// The maximum bytes of weights in one file; a larger tensor has its own file.
    pub max_shard_bytes: u64,
}

/// The format of config.json and of tensor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveFormat {
    /// The format that the model was loaded from if it can express the model, else the first Hugging Face format that can,
    /// else our own.
    HuggingFace,
    /// Our own format.
    Attentive,
}

/// The format in which a model was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The `model_type` in config.json.
    pub model_type: &'static str,
    /// Whether it is one of Hugging Face's formats or our own.
    pub format: SaveFormat,
}

/// The dtype of saved weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveDType {
    /// IEEE single precision.
    Float32,
    /// IEEE half precision: a mantissa of 10 bits.
    Float16,
    /// bfloat16: a mantissa of 7 bits and the exponent range of float32.
    BFloat16,
}

/// Half a step above 65504, the largest float16: from here on, rounding gives infinity.
const FLOAT16_OVERFLOW: f32 = 65520.0;

impl SaveDType {
    /// Its name in config.json.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
        }
    }

    /// Refuses values that would overflow to infinity.
    fn check(self, tensors: &BTreeMap<String, TensorData>) -> Result<(), CheckpointError> {
        if self != Self::Float16 {
            return Ok(());
        }
        for (name, data) in tensors {
            let mut values = data.iter::<f32>();
            if let Some(value) = values.find(|it| it.is_finite() && it.abs() >= FLOAT16_OVERFLOW) {
                return Err(CheckpointError::Overflow {
                    tensor: name.clone(),
                    value,
                });
            }
        }
        Ok(())
    }

    fn convert(self, data: TensorData) -> TensorData {
        match self {
            Self::Float32 => data,
            Self::Float16 => data.convert_dtype(DType::F16),
            Self::BFloat16 => data.convert_dtype(DType::BF16),
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::BFloat16 => 2,
        }
    }
}

/// Hugging Face's defaults.
impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            format: SaveFormat::HuggingFace,
            dtype: SaveDType::Float32,
            max_shard_bytes: 50_000_000_000,
        }
    }
}

/// Saves a model as a folder, which Hugging Face can load where it has an architecture for the model.
///
/// Each file is replaced atomically.
pub fn save(folder: &Path, model: &Model, special: &SpecialTokens) -> Result<(), CheckpointError> {
    save_config(folder, model.config(), special)?;
    save_weights(folder, model)
}

/// Saves a loaded model to a folder that has no weights yet. Nothing is written if the dtype cannot hold the weights.
pub fn convert(
    folder: &Path,
    model: &Model,
    description: &Description,
    options: SaveOptions,
) -> Result<Converted, CheckpointError> {
    let config = model.config();
    let SerializedConfig {
        saved,
        names,
        mut json,
    } = match options.format {
        SaveFormat::HuggingFace => choose_format(config, Some(description.model_type)),
        SaveFormat::Attentive => attentive::FALLBACK
            .serialize(config)
            .expect("our own format can express every config"),
    };
    config_json::write_label_names(&mut json, &description.labels);
    if let Some(problem_type) = description.problem_type {
        problem_type.write(&mut json);
    }
    let generation = (&description.special, &description.generation);
    let tensors = names.write(model_tensors(model));
    options.dtype.check(&tensors)?;
    write_config(folder, json, generation, options.dtype)?;
    write_weights(folder, tensors, options)?;
    Ok(saved)
}

/// Saves a model folder without the weights.
pub fn save_config(
    folder: &Path,
    config: &ModelConfig,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    let json = choose_format(config, None).json;
    let generation = (special, &GenerationSettings::default());
    write_config(folder, json, generation, SaveDType::Float32)
}

/// Saves the weights of a model folder.
pub fn save_weights(folder: &Path, model: &Model) -> Result<(), CheckpointError> {
    let names = choose_format(model.config(), None).names;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let tensors = names.write(model_tensors(model));
    write_tensors(&folder.join("model.safetensors"), tensors, metadata)
}

fn write_config(
    folder: &Path,
    mut json: Value,
    (special, settings): (&SpecialTokens, &GenerationSettings),
    dtype: SaveDType,
) -> Result<(), CheckpointError> {
    // transformers before version 5 reads `torch_dtype`.
    for key in ["torch_dtype", "dtype"] {
        json[key] = json!(dtype.name());
    }
    // A classifier on the last token finds it by its own pad token, which may differ from generation's.
    let pad_token = json.get("pad_token_id").and_then(Value::as_u64);
    let mut generation = json!({});
    for json in [&mut json, &mut generation] {
        special.write(json);
    }
    if let Some(pad_token) = pad_token {
        json["pad_token_id"] = json!(pad_token);
    }
    settings.write(&mut generation);
    std::fs::create_dir_all(folder).map_err(|source| CheckpointError::Io {
        path: folder.to_owned(),
        source,
    })?;
    write_json(&folder.join("config.json"), &json)?;
    write_json(&folder.join("generation_config.json"), &generation)
}

fn write_weights(
    folder: &Path,
    tensors: BTreeMap<String, TensorData>,
    options: SaveOptions,
) -> Result<(), CheckpointError> {
    let metadata = || HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let dtype = options.dtype;
    let total: u64 = tensors.values().map(|it| size(it, dtype)).sum();
    let shards = shards(tensors, options);
    let count = shards.len();
    let mut weight_map = BTreeMap::new();
    for (index, shard) in shards.into_iter().enumerate() {
        let file = match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        weight_map.extend(shard.keys().map(|name| (name.clone(), file.clone())));
        let shard = shard
            .into_iter()
            .map(|(name, data)| (name, dtype.convert(data)));
        write_tensors(&folder.join(file), shard.collect(), metadata())?;
    }
    if count == 1 {
        return Ok(());
    }
    // The index is written last: without it, a folder whose saving was interrupted has no weights.
    let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    write_json(&folder.join("model.safetensors.index.json"), &index)
}

/// The tensors of each file: as many as fit, sorted by name.
fn shards(
    tensors: BTreeMap<String, TensorData>,
    options: SaveOptions,
) -> Vec<BTreeMap<String, TensorData>> {
    let mut shards = vec![BTreeMap::new()];
    let mut shard_size = 0;
    for (name, data) in tensors {
        let size = size(&data, options.dtype);
        if shard_size > 0 && shard_size + size > options.max_shard_bytes {
            shards.push(BTreeMap::new());
            shard_size = 0;
        }
        shard_size += size;
        let last = shards.last_mut().expect("there is one from the start");
        last.insert(name, data);
    }
    shards
}

fn size(data: &TensorData, dtype: SaveDType) -> u64 {
    data.shape().num_elements() as u64 * dtype.bytes()
}

pub(super) fn write_json(path: &Path, json: &Value) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(json).expect("JSON values serialize");
    replace_file(path, (text + "\n").as_bytes()).map_err(|source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })
}
