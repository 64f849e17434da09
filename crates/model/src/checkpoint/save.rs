//! Saving model folders: config.json, generation_config.json, and weights in one file or in several.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::tensor::{DType, TensorData};
use serde_json::{Value, json};

use super::{
    CheckpointError, Description, Expression, GenerationSettings, SpecialTokens, attentive,
    expressing, json as words_of, model_tensors, replace_file, write_tensors,
};
use crate::{Model, ModelConfig};

/// How a model is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// In whose words.
    pub format: SavedAs,
    /// As which numbers.
    pub numbers: SavedNumbers,
    /// The most bytes of weights that one file holds, a tensor that is larger aside.
    pub shard_bytes: u64,
}

/// In whose words a model is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedAs {
    /// As the type that it was loaded from, else as the first of Hugging Face's that can express it, else in ours.
    HuggingFace,
    /// In ours.
    Attentive,
}

/// As what a model was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The `model_type` of its config.json.
    pub model_type: &'static str,
    /// In whose words.
    pub format: SavedAs,
}

/// As which numbers weights are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedNumbers {
    /// 32 bits.
    Float32,
    /// 16 bits, of which 10 are digits.
    Float16,
    /// 16 bits, of which 7 are digits and the rest reaches as far as 32 bits do.
    BFloat16,
}

/// Half a step beyond the largest number of 16 bits, 65504; from here on, rounding gives infinity.
const FLOAT16_ENDS: f32 = 65520.0;

impl SavedNumbers {
    /// Hugging Face's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
        }
    }

    /// Refuses numbers that would become infinite.
    fn check(self, tensors: &BTreeMap<String, TensorData>) -> Result<(), CheckpointError> {
        if self != Self::Float16 {
            return Ok(());
        }
        for (name, data) in tensors {
            let mut numbers = data.iter::<f32>();
            if let Some(value) = numbers.find(|it| it.is_finite() && it.abs() >= FLOAT16_ENDS) {
                return Err(CheckpointError::Overflow {
                    tensor: name.clone(),
                    value,
                });
            }
        }
        Ok(())
    }

    fn of(self, data: TensorData) -> TensorData {
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

/// As Hugging Face does it unless told otherwise.
impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            format: SavedAs::HuggingFace,
            numbers: SavedNumbers::Float32,
            shard_bytes: 50_000_000_000,
        }
    }
}

/// Saves a model as a folder that Hugging Face loads, where it has an architecture for it.
///
/// Each file is replaced whole or not at all.
pub fn save(folder: &Path, model: &Model, special: &SpecialTokens) -> Result<(), CheckpointError> {
    save_config(folder, model.config(), special)?;
    save_weights(folder, model)
}

/// Saves a model that was loaded, into a folder without weights. Where its numbers cannot be saved as asked, nothing is written.
pub fn convert(
    folder: &Path,
    model: &Model,
    description: &Description,
    options: SaveOptions,
) -> Result<Saved, CheckpointError> {
    let config = model.config();
    let Expression {
        saved,
        names,
        mut words,
    } = match options.format {
        SavedAs::HuggingFace => expressing(config, Some(description.model_type)),
        SavedAs::Attentive => attentive::FORMAT_OF_ALL
            .expression(config)
            .expect("our own format can express every config"),
    };
    words_of::write_label_names(&mut words, &description.labels);
    if let Some(problem) = description.problem {
        problem.write(&mut words);
    }
    let said = (&description.special, &description.generation);
    let tensors = names.write(model_tensors(model));
    options.numbers.check(&tensors)?;
    write_config(folder, words, said, options.numbers)?;
    write_weights(folder, tensors, options)?;
    Ok(saved)
}

/// Saves all of a model folder but the weights.
pub fn save_config(
    folder: &Path,
    config: &ModelConfig,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    let words = expressing(config, None).words;
    let said = (special, &GenerationSettings::default());
    write_config(folder, words, said, SavedNumbers::Float32)
}

/// Saves the weights of a model folder.
pub fn save_weights(folder: &Path, model: &Model) -> Result<(), CheckpointError> {
    let names = expressing(model.config(), None).names;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let tensors = names.write(model_tensors(model));
    write_tensors(&folder.join("model.safetensors"), tensors, metadata)
}

fn write_config(
    folder: &Path,
    mut words: Value,
    (special, settings): (&SpecialTokens, &GenerationSettings),
    numbers: SavedNumbers,
) -> Result<(), CheckpointError> {
    // The first is what versions before 5 read.
    for key in ["torch_dtype", "dtype"] {
        words[key] = json!(numbers.word());
    }
    // Where a class finds the end of a text by its pad token, that one counts, whatever generation calls padding.
    let pad_token = words.get("pad_token_id").and_then(Value::as_u64);
    let mut generation = json!({});
    for words in [&mut words, &mut generation] {
        special.write(words);
    }
    if let Some(pad_token) = pad_token {
        words["pad_token_id"] = json!(pad_token);
    }
    settings.write(&mut generation);
    std::fs::create_dir_all(folder).map_err(|source| CheckpointError::Io {
        path: folder.to_owned(),
        source,
    })?;
    write_json(&folder.join("config.json"), &words)?;
    write_json(&folder.join("generation_config.json"), &generation)
}

fn write_weights(
    folder: &Path,
    tensors: BTreeMap<String, TensorData>,
    options: SaveOptions,
) -> Result<(), CheckpointError> {
    let metadata = || HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let numbers = options.numbers;
    let total: u64 = tensors.values().map(|it| size(it, numbers)).sum();
    let shards = shards(tensors, options);
    let count = shards.len();
    let mut places = BTreeMap::new();
    for (index, shard) in shards.into_iter().enumerate() {
        let file = match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        places.extend(shard.keys().map(|name| (name.clone(), file.clone())));
        let shard = shard
            .into_iter()
            .map(|(name, data)| (name, numbers.of(data)));
        write_tensors(&folder.join(file), shard.collect(), metadata())?;
    }
    if count == 1 {
        return Ok(());
    }
    // The index comes last: without it, a folder that was left half-written holds no weights.
    let index = json!({ "metadata": { "total_size": total }, "weight_map": places });
    write_json(&folder.join("model.safetensors.index.json"), &index)
}

/// The tensors of each file: as many as fit, in the order of their names.
fn shards(
    tensors: BTreeMap<String, TensorData>,
    options: SaveOptions,
) -> Vec<BTreeMap<String, TensorData>> {
    let mut shards = vec![BTreeMap::new()];
    let mut held = 0;
    for (name, data) in tensors {
        let size = size(&data, options.numbers);
        if held > 0 && held + size > options.shard_bytes {
            shards.push(BTreeMap::new());
            held = 0;
        }
        held += size;
        let last = shards.last_mut().expect("there is one from the start");
        last.insert(name, data);
    }
    shards
}

fn size(data: &TensorData, numbers: SavedNumbers) -> u64 {
    data.shape().num_elements() as u64 * numbers.bytes()
}

pub(super) fn write_json(path: &Path, words: &Value) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(words).expect("JSON values serialize");
    replace_file(path, (text + "\n").as_bytes()).map_err(|source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })
}
