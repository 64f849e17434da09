//! Model folders in Hugging Face's layout: `config.json`, `model.safetensors` (or several files under an index, or PyTorch's
//! older ones), `generation_config.json`.
//!
//! A `Format` is a config reader, a config writer and a table of tensor names; both directions come from the one
//! table. Hugging Face's words appear only below this module. A model that no Hugging Face architecture can express is
//! saved under `model_type: "attentive"` with our own settings and names.

mod albert;
mod attentive;
mod bart;
mod bert;
mod bert_family;
mod bert_generation;
mod big_bird;
mod distilbert;
mod error;
mod gpt2;
mod heads;
mod json;
mod llama;
mod longformer;
mod named;
mod reformer;
mod replace_file;
mod roberta;
mod rope;
mod t5;
mod table;
mod tensor_file;
mod transfo_xl;
mod vit;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use serde_json::{Value, json};

pub use error::{CheckpointError, TensorProblems};
pub use json::in_plain_words;
pub use named::{INPUTS, Outputs, Wanted, forward};
pub use replace_file::{replace_file, replace_file_with};
pub use tensor_file::{TensorFile, write_tensors};

use crate::{FeedForwardConfig, Model, ModelConfig, parameters, replace_parameters};
use table::{Names, Row, Table};

/// How one family of models is written down by Hugging Face.
struct Format {
    /// The `model_type` of its config.json.
    model_type: &'static str,
    /// From config.json to our settings, heads aside.
    read: fn(&Value) -> Result<ModelConfig, String>,
    /// From our settings to config.json, as far as the format has words for them.
    write: fn(&ModelConfig) -> Option<Value>,
    /// The names of the tensors, theirs and ours.
    table: Table,
    /// How many blocks stand together in a group of their names.
    group: fn(&ModelConfig) -> usize,
    /// What Hugging Face lists as the last of the hidden states.
    last_state: LastState,
    /// The heads that a model of the family can have; the first is meant where config.json says nothing.
    architectures: &'static [Architecture],
}

/// What Hugging Face lists as the last of the hidden states of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastState {
    /// What the heads read, after the last norm.
    Normed,
    /// What the last block gives, before the last norm.
    OfLastBlock,
}

/// A class that Hugging Face has for a family of models with a certain head.
struct Architecture {
    /// Its name in `architectures`; empty for our own format.
    name: &'static str,
    /// Adds the heads to the settings.
    heads: fn(&Value, &mut ModelConfig) -> Result<(), String>,
    /// The names of the heads' tensors.
    rows: &'static [Row],
    /// Whether names are saved without the prefix of the family, as Hugging Face does for models without heads.
    bare: bool,
}

impl Format {
    /// The settings that config.json means, and the class that it names.
    fn settings(&self, words: &Value) -> Result<(ModelConfig, &'static Architecture), String> {
        let mut config = (self.read)(words)?;
        let name = words["architectures"][0].as_str();
        let named = |it: &&Architecture| name.is_none_or(|name| it.name == name);
        let Some(architecture) = self.architectures.iter().find(named) else {
            let known: Vec<&str> = self.architectures.iter().map(|it| it.name).collect();
            return Err(format!(
                "architectures: {} is not supported; supported are {}",
                words["architectures"][0],
                known.join(", ")
            ));
        };
        (architecture.heads)(words, &mut config)?;
        Ok((config, architecture))
    }

    /// The names of all tensors of a class.
    fn names(&'static self, architecture: &Architecture, config: &ModelConfig) -> Names {
        Names {
            table: &self.table,
            heads: architecture.rows,
            bare: architecture.bare,
            known: self.architectures.iter().flat_map(|it| it.rows).collect(),
            patches: config.patches,
            group: (self.group)(config),
            gated: is_gated(config),
            width: config.width,
        }
    }
}

/// In the order in which saving tries them; the last can express everything.
static FORMATS: [Format; 18] = [
    gpt2::FORMAT,
    llama::FORMAT,
    bert::FORMAT,
    roberta::FORMAT,
    longformer::FORMAT,
    big_bird::FORMAT,
    distilbert::FORMAT,
    albert::FORMAT,
    bert_generation::ALONE,
    bert_generation::PAIR,
    vit::VIT,
    vit::DEIT,
    bart::BART,
    bart::MARIAN,
    t5::FORMAT,
    reformer::FORMAT,
    transfo_xl::FORMAT,
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
    /// What is listed as the last of the hidden states.
    pub last_state: LastState,
}

/// Reads what a folder says of its model.
pub fn describe(folder: &Path) -> Result<Description, CheckpointError> {
    Ok(read_config(folder)?.1)
}

/// Loads the model of a folder.
pub fn load(folder: &Path, device: &Device) -> Result<(Model, Description), CheckpointError> {
    let (names, description) = read_config(folder)?;
    let model =
        Model::new(&description.config, 0, device).map_err(|error| CheckpointError::Config {
            path: folder.join("config.json"),
            problem: error.to_string(),
        })?;
    let file = TensorFile::of_folder(folder)?;
    let values =
        names
            .read(&parameters(&model), &file)
            .map_err(|problems| CheckpointError::Tensors {
                path: file.path().to_owned(),
                problems,
            })?;
    Ok((replace_parameters(model, values), description))
}

/// Saves a model as a folder that Hugging Face loads, where it has an architecture for it.
///
/// Each file is replaced whole or not at all.
pub fn save(folder: &Path, model: &Model, special: &SpecialTokens) -> Result<(), CheckpointError> {
    save_config(folder, model.config(), special)?;
    save_weights(folder, model)
}

/// Saves a model that was loaded, as the `model_type` that it was loaded from, if that can still express it.
pub fn save_again(
    folder: &Path,
    model: &Model,
    description: &Description,
) -> Result<(), CheckpointError> {
    let (names, words) = expressing(model.config(), Some(description.model_type));
    write_config(folder, words, &description.special)?;
    write_weights(folder, model, &names)
}

/// Saves all of a model folder but the weights.
pub fn save_config(
    folder: &Path,
    config: &ModelConfig,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
    write_config(folder, expressing(config, None).1, special)
}

fn write_config(
    folder: &Path,
    mut words: Value,
    special: &SpecialTokens,
) -> Result<(), CheckpointError> {
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
pub fn save_weights(folder: &Path, model: &Model) -> Result<(), CheckpointError> {
    write_weights(folder, model, &expressing(model.config(), None).0)
}

fn write_weights(folder: &Path, model: &Model, names: &Names) -> Result<(), CheckpointError> {
    let tensors = names.write(model_tensors(model));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    write_tensors(&folder.join("model.safetensors"), tensors, metadata)
}

/// One tensor per parameter (weights, or their gradients), under the names and in the layout in which they are saved.
pub fn saved_tensors(
    config: &ModelConfig,
    ours: BTreeMap<String, TensorData>,
) -> BTreeMap<String, TensorData> {
    expressing(config, None).0.write(ours)
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

/// The names of the first class that can express the settings, and the words for them; those of `first` are tried first.
fn expressing(config: &ModelConfig, first: Option<&str>) -> (Names, Value) {
    let config = config.canonical();
    let meant = config.without_dropout();
    let preferred = FORMATS.iter().filter(|it| first == Some(it.model_type));
    for format in preferred.chain(&FORMATS) {
        let Some(mut words) = (format.write)(&config) else {
            continue;
        };
        words["model_type"] = json!(format.model_type);
        json::write_labels(&mut words, &config);
        for architecture in format.architectures {
            if !architecture.name.is_empty() {
                words["architectures"] = json!([architecture.name]);
            }
            // The proof that nothing is lost: the words mean the same settings. Dropout aside, which a model in use does
            // not have.
            let back = format.settings(&words).ok();
            if back.is_some_and(|(back, _)| back.canonical().without_dropout() == meant) {
                return (format.names(architecture, &config), words);
            }
        }
    }
    unreachable!("our own format can express every config")
}

fn read_config(folder: &Path) -> Result<(Names, Description), CheckpointError> {
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
    let wrong = |path: &Path, problem: String| CheckpointError::Config {
        path: path.to_owned(),
        problem,
    };
    let (config, architecture) = format
        .settings(&words)
        .map_err(|problem| wrong(&path, problem))?;
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
    let names = format.names(architecture, &config);
    let description = Description {
        model_type: format.model_type,
        config,
        special,
        last_state: format.last_state,
    };
    Ok((names, description))
}

fn write_json(path: &Path, words: &Value) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(words).expect("JSON values serialize");
    replace_file(path, (text + "\n").as_bytes()).map_err(|source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Whether the first block's feed-forward layer has a gate.
fn is_gated(config: &ModelConfig) -> bool {
    let first = config.blocks.first();
    first.is_some_and(|block| matches!(block.feed_forward, FeedForwardConfig::Gated(_)))
}
