//! Model folders in Hugging Face's layout: `config.json`, `model.safetensors` (or several files under an index, or PyTorch's
//! older ones), `generation_config.json`. GGUF files are read too (`gguf`).
//!
//! A `Format` is a config reader, a config writer and a table of tensor names; both directions come from the one
//! table. Hugging Face's words appear only below this module. A model that no Hugging Face architecture can express is
//! saved under `model_type: "attentive"` with our own settings and names. Recurrent encoder-decoders, which are no
//! transformers, have folders and functions of their own (`recurrent`).

mod adapt;
mod albert;
mod attentive;
mod bart;
mod bert;
mod bert_family;
mod bert_generation;
mod big_bird;
mod distilbert;
mod encoder_decoder;
mod error;
mod generation;
mod gguf;
mod gpt2;
mod heads;
mod json;
mod llama;
mod llama_family;
mod longformer;
mod mistral;
mod mixtral;
mod named;
mod operation;
mod problem;
mod qwen2;
mod qwen3;
mod recurrent;
mod reformer;
mod replace_file;
mod roberta;
mod rope;
mod save;
mod t5;
mod table;
mod tensor_file;
mod their_key;
mod transfo_xl;
mod vit;
mod windows;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use serde_json::{Value, json};

pub use error::{CheckpointError, TensorProblems};
pub use generation::{Bias, EndPull, GenerationSettings, MOST_BEAMS, SearchEnd, SpecialTokens};
pub use gguf::is_gguf;
pub use json::{in_plain_words, one_line};
pub use named::{
    OutputNames, Outputs, RECURRENT_INPUTS, Wanted, forward, forward_recurrent, inputs_of,
};
pub use problem::{Problem, ScoresAs};
pub use recurrent::{
    RECURRENT_TYPE, describe_recurrent, is_recurrent, load_recurrent, save_recurrent,
};
pub use replace_file::{replace_file, replace_file_with};
pub use save::{
    SaveOptions, Saved, SavedAs, SavedNumbers, convert, save, save_config, save_weights,
};
pub use tensor_file::{TensorFile, write_tensors};

use crate::{FeedForwardConfig, Model, ModelConfig, parameters, replace_parameters};
use table::{Names, Row, Table};
use their_key::in_their_words;

/// How one family of models is written down by Hugging Face.
struct Format {
    /// The `model_type` of its config.json.
    model_type: &'static str,
    /// The `model_type` of its decoder, where config.json holds the settings of two models.
    decoder: Option<&'static str>,
    /// From config.json to our settings, heads aside.
    read: fn(&Value) -> Result<ModelConfig, String>,
    /// From our settings to config.json, as far as the format has words for them.
    write: fn(&ModelConfig) -> Option<Value>,
    /// The names of the tensors, theirs and ours.
    table: Table,
    /// How many blocks stand together in a group of their names.
    group: fn(&Value) -> usize,
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

    /// Settings in the format's words, if it can express them.
    fn expression(&'static self, config: &ModelConfig) -> Option<Expression> {
        let config = config.canonical();
        let meant = config.without_dropout();
        let mut words = (self.write)(&config)?;
        words["model_type"] = json!(self.model_type);
        json::write_labels(&mut words, &config);
        heads::write_pad_token(&mut words, &config);
        self.architectures.iter().find_map(|architecture| {
            if !architecture.name.is_empty() {
                words["architectures"] = json!([architecture.name]);
            }
            // The proof that nothing is lost: the words mean the same settings. Dropout aside, which a model in use does
            // not have.
            let (back, _) = self.settings(&words).ok()?;
            let same = back.canonical().without_dropout() == meant;
            same.then(|| Expression {
                saved: Saved {
                    model_type: self.model_type,
                    format: match architecture.name {
                        "" => SavedAs::Attentive,
                        _ => SavedAs::HuggingFace,
                    },
                },
                names: self.names(architecture, &config, &words),
                words: words.clone(),
            })
        })
    }

    /// The names of all tensors of a class.
    fn names(
        &'static self,
        architecture: &Architecture,
        config: &ModelConfig,
        words: &Value,
    ) -> Names {
        Names {
            table: &self.table,
            heads: architecture.rows,
            bare: architecture.bare,
            known: self.architectures.iter().flat_map(|it| it.rows).collect(),
            patches: config.patches,
            head_width: config.head_width(),
            group: (self.group)(words),
            untied: config.head.words().is_some_and(|words| !words.tied),
            gated: is_gated(config),
            width: config.width,
        }
    }
}

/// Settings as a format writes them down.
struct Expression {
    saved: Saved,
    /// The names of all tensors.
    names: Names,
    /// The words of config.json.
    words: Value,
}

/// In the order in which saving tries them; the last can express everything.
static FORMATS: [Format; 25] = [
    gpt2::FORMAT,
    llama::FORMAT,
    mistral::FORMAT,
    qwen2::FORMAT,
    qwen3::FORMAT,
    mixtral::FORMAT,
    bert::FORMAT,
    roberta::FORMAT,
    longformer::FORMAT,
    big_bird::FORMAT,
    distilbert::FORMAT,
    albert::FORMAT,
    bert_generation::FORMAT,
    encoder_decoder::BERT_GENERATION,
    encoder_decoder::BERT,
    encoder_decoder::ROBERTA,
    encoder_decoder::GPT2,
    vit::VIT,
    vit::DEIT,
    bart::BART,
    bart::MARIAN,
    t5::FORMAT,
    reformer::FORMAT,
    transfo_xl::FORMAT,
    attentive::FORMAT,
];

/// What a model folder says of its model, without the weights.
#[derive(Clone, Debug)]
pub struct Description {
    /// The `model_type` of its config.json.
    pub model_type: &'static str,
    /// The settings.
    pub config: ModelConfig,
    /// Ids with a meaning for generation.
    pub special: SpecialTokens,
    /// How its texts are to be made.
    pub generation: GenerationSettings,
    /// What is listed as the last of the hidden states.
    pub last_state: LastState,
    /// What the class calls what its heads give.
    pub outputs: OutputNames,
    /// The names of classes or labels, where the folder has names for them.
    pub labels: Vec<String>,
    /// What the classes of a sequence are, where the folder says so.
    pub problem: Option<Problem>,
}

/// Reads what a folder, or a GGUF file, says of its model. Where weights are there, their names have a say.
pub fn describe(path: &Path) -> Result<Description, CheckpointError> {
    if is_gguf(path) {
        return gguf::describe(path);
    }
    let (names, mut description) = read_config(path)?;
    match TensorFile::of_folder(path) {
        Ok(file) => description.config = adapt::adapted(&description.config, &names, &file),
        // A run that has not saved yet, or a model of the hub of which only this was asked.
        Err(CheckpointError::NoWeights { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(description)
}

/// Loads the model of a folder, or of a GGUF file.
pub fn load(path: &Path, device: &Device) -> Result<(Model, Description), CheckpointError> {
    if is_gguf(path) {
        return gguf::load(path, device);
    }
    let (names, mut description) = read_config(path)?;
    let file = TensorFile::of_folder(path)?;
    description.config = adapt::adapted(&description.config, &names, &file);
    let model = built(&description.config, &path.join("config.json"), device)?;
    let model = filled(model, &names, &file, "config.json")?;
    Ok((model, description))
}

/// A model without its weights; `settings` is the file that says what it is.
fn built(config: &ModelConfig, settings: &Path, device: &Device) -> Result<Model, CheckpointError> {
    Model::new(config, 0, device).map_err(|error| CheckpointError::Config {
        path: settings.to_owned(),
        problem: error.to_string(),
    })
}

/// The model with the weights of a file, all of them.
fn filled<M: Module>(
    model: M,
    names: &Names,
    file: &TensorFile,
    settings: &'static str,
) -> Result<M, CheckpointError> {
    let values =
        names
            .read(&parameters(&model), file)
            .map_err(|problems| CheckpointError::Tensors {
                path: file.path().to_owned(),
                settings,
                problems,
            })?;
    Ok(replace_parameters(model, values))
}

/// One tensor per parameter (weights, or their gradients), under the names and in the layout in which they are saved.
pub fn saved_tensors(
    config: &ModelConfig,
    ours: BTreeMap<String, TensorData>,
) -> BTreeMap<String, TensorData> {
    expressing(config, None).names.write(ours)
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

/// The first class that can express the settings; those of `first` are tried first.
fn expressing(config: &ModelConfig, first: Option<&str>) -> Expression {
    let preferred = FORMATS.iter().filter(|it| first == Some(it.model_type));
    let found = preferred
        .chain(&FORMATS)
        .find_map(|format| format.expression(config));
    found.expect("our own format can express every config")
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
    if model_type == RECURRENT_TYPE {
        return Err(CheckpointError::Recurrent { path });
    }
    let wrong = |path: &Path, problem: String| CheckpointError::Config {
        path: path.to_owned(),
        problem,
    };
    let formats: Vec<&Format> = FORMATS
        .iter()
        .filter(|format| format.model_type == model_type)
        .collect();
    if formats.is_empty() {
        let mut supported: Vec<&str> = FORMATS.iter().map(|format| format.model_type).collect();
        supported.dedup();
        return Err(CheckpointError::UnknownType {
            path,
            model_type: model_type.to_owned(),
            supported,
        });
    }
    let decoder = &words["decoder"]["model_type"];
    let meant = |format: &&&Format| format.decoder.is_none_or(|it| *decoder == it);
    let Some(format) = formats.iter().find(meant) else {
        let known: Vec<&str> = formats.iter().filter_map(|it| it.decoder).collect();
        let known = known.join(", ");
        let problem =
            format!("decoder.model_type {decoder} is not supported; supported are {known}");
        return Err(wrong(&path, problem));
    };
    let (config, architecture) = format
        .settings(&words)
        .map_err(|problem| wrong(&path, problem))?;
    config
        .validate()
        .map_err(|error| wrong(&path, in_their_words(&words, &error)))?;
    let (special, generation) = generation::read(folder, &words)?;
    let names = format.names(architecture, &config, &words);
    let description = Description {
        model_type: format.model_type,
        outputs: OutputNames::of(&names, &config),
        config,
        special,
        generation,
        last_state: format.last_state,
        labels: json::label_names(&words),
        problem: Problem::read(&words).map_err(|problem| wrong(&path, problem))?,
    };
    Ok((names, description))
}

/// Whether the first block's feed-forward layer has a gate.
fn is_gated(config: &ModelConfig) -> bool {
    let first = config.blocks.first();
    first.is_some_and(|block| matches!(block.feed_forward, FeedForwardConfig::Gated(_)))
}
