//! Model folders in Hugging Face's layout: `config.json`, `model.safetensors` (or several files under an index, or PyTorch's
//! older ones), `generation_config.json`. GGUF files are read too (`gguf`).
//!
//! A `Format` is a config reader, a config writer and a table of tensor names; both directions come from the one
//! table. Hugging Face's words appear only below this module. A model that no Hugging Face architecture can express is
//! saved under `model_type: "attentive"` with our own settings and names.

mod attentive;
mod error;
mod gguf;
mod gpt2;
mod json;
mod llama;
mod llama_family;
mod mistral;
mod mixtral;
mod qwen2;
mod qwen3;
mod replace_file;
mod rope;
mod table;
mod tensor_file;
mod windows;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use serde_json::{Value, json};

pub use error::{CheckpointError, TensorProblems};
pub use gguf::is_gguf;
pub use json::in_plain_words;
pub use replace_file::{replace_file, replace_file_with};
pub use tensor_file::{TensorFile, write_tensors};

use crate::{LanguageModel, ModelConfig, parameters, replace_parameters};
use table::Table;

/// How one architecture is written down by Hugging Face.
struct Format {
    /// The `model_type` of its config.json.
    model_type: &'static str,
    /// The class that loads it in Python; none for our own format.
    architecture: Option<&'static str>,
    /// From config.json to our settings.
    read: fn(&Value) -> Result<ModelConfig, String>,
    /// From our settings to config.json, as far as the format has words for them.
    write: fn(&ModelConfig) -> Option<Value>,
    /// The names of the tensors, theirs and ours.
    table: Table,
}

/// In the order in which saving tries them; the last can express everything.
static FORMATS: [Format; 7] = [
    gpt2::FORMAT,
    llama::FORMAT,
    mistral::FORMAT,
    qwen2::FORMAT,
    qwen3::FORMAT,
    mixtral::FORMAT,
    attentive::FORMAT,
];

/// Ids with a meaning for generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// What a text starts with.
    pub beginning: Option<u32>,
    /// What ends a text.
    pub end: Vec<u32>,
}

/// What a model folder says of its model, without the weights.
#[derive(Clone, Debug)]
pub struct Description {
    /// The `model_type` of its config.json.
    pub model_type: &'static str,
    /// The settings.
    pub config: ModelConfig,
    /// Ids with a meaning for generation.
    pub special: SpecialTokens,
}

/// Reads what a folder, or a GGUF file, says of its model.
pub fn describe(path: &Path) -> Result<Description, CheckpointError> {
    if is_gguf(path) {
        return gguf::describe(path);
    }
    Ok(read_config(path)?.1)
}

/// Loads the model of a folder, or of a GGUF file.
pub fn load(path: &Path, device: &Device) -> Result<(LanguageModel, Description), CheckpointError> {
    if is_gguf(path) {
        return gguf::load(path, device);
    }
    let (format, description) = read_config(path)?;
    let model = built(&description.config, &path.join("config.json"), device)?;
    let file = TensorFile::of_folder(path)?;
    let model = filled(model, &format.table, &file, "config.json")?;
    Ok((model, description))
}

/// A model without its weights; `settings` is the file that says what it is.
fn built(
    config: &ModelConfig,
    settings: &Path,
    device: &Device,
) -> Result<LanguageModel, CheckpointError> {
    LanguageModel::new(config, 0, device).map_err(|error| CheckpointError::Config {
        path: settings.to_owned(),
        problem: error.to_string(),
    })
}

/// The model with the weights of a file, all of them.
fn filled(
    model: LanguageModel,
    table: &Table,
    file: &TensorFile,
    settings: &'static str,
) -> Result<LanguageModel, CheckpointError> {
    let head_width = model.config().head_width();
    let values = table
        .read(&parameters(&model), file, head_width)
        .map_err(|problems| CheckpointError::Tensors {
            path: file.path().to_owned(),
            settings,
            problems,
        })?;
    Ok(replace_parameters(model, values))
}

/// Saves a model as a folder that Hugging Face loads, where it has an architecture for it.
///
/// Each file is replaced whole or not at all.
pub fn save(
    folder: &Path,
    model: &LanguageModel,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    save_config(folder, model.config(), special)?;
    save_weights(folder, model)
}

/// Saves all of a model folder but the weights.
pub fn save_config(
    folder: &Path,
    config: &ModelConfig,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    let (format, mut words) = expressing(config);
    words["model_type"] = json!(format.model_type);
    if let Some(architecture) = format.architecture {
        words["architectures"] = json!([architecture]);
    }
    words["torch_dtype"] = json!("float32");
    let mut generation = json!({});
    for words in [&mut words, &mut generation] {
        json::write_special(words, special);
    }
    std::fs::create_dir_all(folder).map_err(|source| CheckpointError::Io {
        path: folder.to_owned(),
        source,
    })?;
    write_json(&folder.join("config.json"), &words)?;
    write_json(&folder.join("generation_config.json"), &generation)
}

/// Saves the weights of a model folder.
pub fn save_weights(folder: &Path, model: &LanguageModel) -> Result<(), CheckpointError> {
    let tensors = saved_tensors(model.config(), model_tensors(model));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    write_tensors(&folder.join("model.safetensors"), tensors, metadata)
}

/// One tensor per parameter (weights, or their gradients), under the names and in the layout in which they are saved.
pub fn saved_tensors(
    config: &ModelConfig,
    ours: BTreeMap<String, TensorData>,
) -> BTreeMap<String, TensorData> {
    let table = &expressing(config).0.table;
    table.write(ours, config.head_width())
}

/// The values of a module's parameters, by our names.
pub fn model_tensors<M: Module>(model: &M) -> BTreeMap<String, TensorData> {
    struct Values(Vec<TensorData>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().into_data());
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    let names = parameters(model)
        .into_iter()
        .map(|parameter| parameter.name);
    names.zip(values.0).collect()
}

/// The first format that can express the settings, and its words for them.
fn expressing(config: &ModelConfig) -> (&'static Format, Value) {
    let config = config.canonical();
    FORMATS
        .iter()
        .find_map(|format| {
            let words = (format.write)(&config)?;
            // The proof that nothing is lost: the words mean the same settings. Dropout aside, which a model in use
            // does not have.
            let back = (format.read)(&words).ok()?.canonical();
            (back.without_dropout() == config.without_dropout()).then_some((format, words))
        })
        .expect("our own format can express every config")
}

fn read_config(folder: &Path) -> Result<(&'static Format, Description), CheckpointError> {
    let path = folder.join("config.json");
    if !path.exists() {
        return Err(CheckpointError::NoFolder {
            path: folder.to_owned(),
        });
    }
    let words = json::read(&path)?;
    let model_type = words["model_type"].as_str().unwrap_or_default();
    let Some(format) = FORMATS
        .iter()
        .find(|format| format.model_type == model_type)
    else {
        return Err(CheckpointError::UnknownType {
            path,
            model_type: model_type.to_owned(),
            supported: FORMATS.iter().map(|format| format.model_type).collect(),
        });
    };
    let config = (format.read)(&words).map_err(|problem| CheckpointError::Config {
        path: path.clone(),
        problem,
    })?;
    let wrong = |path: &Path, problem: String| CheckpointError::Config {
        path: path.to_owned(),
        problem,
    };
    config
        .validate()
        .map_err(|error| wrong(&path, error.to_string()))?;
    let mut special = json::read_special(&words, SpecialTokens::default())
        .map_err(|problem| wrong(&path, problem))?;
    let generation = folder.join("generation_config.json");
    if generation.exists() {
        special = json::read_special(&json::read(&generation)?, special)
            .map_err(|problem| wrong(&generation, problem))?;
    }
    let description = Description {
        model_type: format.model_type,
        config,
        special,
    };
    Ok((format, description))
}

fn write_json(path: &Path, words: &Value) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(words).expect("JSON values serialize");
    replace_file(path, (text + "\n").as_bytes()).map_err(|source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })
}
