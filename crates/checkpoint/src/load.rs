//! Loading a model: config.json, then the weights that it asks for.

use std::path::{Path, PathBuf};

use attentive_generation::settings;
use attentive_model::head::HeadConfig;
use attentive_model::{Model, ModelConfig, parameters, replace_parameters};
use burn::module::Module;
use burn::tensor::Device;
use serde_json::Value;

use crate::adapt_to_weights::adapt_to_weights;
use crate::format::{FORMATS, Format, ModelClass};
use crate::name_table::TensorNames;
use crate::{
    CheckpointError, Description, OutputNames, ProblemType, RECURRENT_TYPE, TensorFile,
    config_json, gguf, hf_keys, is_gguf,
};

/// What is loaded of a model, and what its files do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Which heads are loaded.
    pub heads: Heads,
    /// The `model_type`, instead of the one in config.json.
    pub model_type: Option<String>,
    /// The config.json, instead of the folder's.
    pub config: Option<PathBuf>,
}

/// Which heads are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heads {
    /// All of the model class.
    #[default]
    All,
    /// None: their settings and tensors are neither read nor checked. (A GGUF file has no settings of its head, and is loaded
    /// with it.)
    None,
}

/// Describes the model of a folder or a GGUF file. Where there are weights, their names are taken into account.
pub fn describe(path: &Path) -> Result<Description, CheckpointError> {
    describe_with(path, &LoadOptions::default())
}

/// [`describe`], with options.
pub fn describe_with(path: &Path, options: &LoadOptions) -> Result<Description, CheckpointError> {
    if is_gguf(path) {
        refuse_for_gguf(path, options)?;
        return gguf::describe(path);
    }
    let (names, mut description) = read_config(path, options)?;
    match TensorFile::from_folder(path) {
        Ok(file) => description.config = adapt_to_weights(&description.config, &names, &file),
        // A run that has not saved yet, or a hub model of which only the config was fetched.
        Err(CheckpointError::NoWeights { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(description)
}

/// Loads the model of a folder or a GGUF file.
pub fn load(path: &Path, device: &Device) -> Result<(Model, Description), CheckpointError> {
    load_with(path, &LoadOptions::default(), device)
}

/// [`load`], with options.
pub fn load_with(
    path: &Path,
    options: &LoadOptions,
    device: &Device,
) -> Result<(Model, Description), CheckpointError> {
    if is_gguf(path) {
        refuse_for_gguf(path, options)?;
        return gguf::load(path, device);
    }
    let (names, mut description) = read_config(path, options)?;
    let file = TensorFile::from_folder(path)?;
    description.config = adapt_to_weights(&description.config, &names, &file);
    let model = build(&description.config, &path.join("config.json"), device)?;
    let model = load_weights(model, &names, &file, "config.json")?;
    Ok((model, description))
}

/// An initialized model, without loaded weights. `config_path` is named in errors.
pub(crate) fn build(
    config: &ModelConfig,
    config_path: &Path,
    device: &Device,
) -> Result<Model, CheckpointError> {
    Model::new(config, 0, device).map_err(|error| CheckpointError::Config {
        path: config_path.to_owned(),
        problem: error.to_string(),
    })
}

/// Loads all weights of a model from a file. `settings` names the source of the config in errors.
pub(crate) fn load_weights<M: Module>(
    model: M,
    names: &TensorNames,
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

/// A GGUF file says what it is.
fn refuse_for_gguf(path: &Path, options: &LoadOptions) -> Result<(), CheckpointError> {
    match options.model_type.is_some() || options.config.is_some() {
        true => Err(CheckpointError::Config {
            path: path.to_owned(),
            problem: "a GGUF file has its own metadata; leave model_type and config out".to_owned(),
        }),
        false => Ok(()),
    }
}

/// A model class without heads.
static NO_HEADS: ModelClass = ModelClass {
    name: "",
    heads: |_, config| {
        config.head = HeadConfig::None;
        config.pooler = None;
        config.sequence_classifier = None;
        config.token_classifier = None;
        Ok(())
    },
    rows: &[],
    base_model: false,
};

/// Reads config.json and generation_config.json.
fn read_config(
    folder: &Path,
    options: &LoadOptions,
) -> Result<(TensorNames, Description), CheckpointError> {
    let path = match &options.config {
        Some(path) => path.clone(),
        None => folder.join("config.json"),
    };
    if options.config.is_none() && !path.exists() {
        return Err(CheckpointError::NoFolder {
            path: folder.to_owned(),
        });
    }
    let mut json = config_json::read(&path)?;
    if let Some(model_type) = &options.model_type {
        json["model_type"] = model_type.as_str().into();
    }
    if json["model_type"] == RECURRENT_TYPE {
        return Err(CheckpointError::Recurrent { path });
    }
    let config_error = |problem: String| CheckpointError::Config {
        path: path.clone(),
        problem,
    };
    let format = find_format(&json, &path)?;
    let (config, class) = match options.heads {
        Heads::All => format.parse(&json),
        Heads::None => (format.read)(&json).and_then(|mut config| {
            // The decoder of an encoder-decoder is no head: nothing can be left out.
            if config.encoder.is_some() {
                return format.parse(&json);
            }
            (NO_HEADS.heads)(&json, &mut config)?;
            Ok((config, &NO_HEADS))
        }),
    }
    .map_err(config_error)?;
    config
        .validate()
        .map_err(|error| config_error(hf_keys::error_message(&json, &error)))?;
    let (special, generation) = settings::read(folder, &json)?;
    let names = TensorNames {
        ignores_heads: std::ptr::eq(class, &NO_HEADS),
        ..format.names(class, &config, &json)
    };
    let problem_type = match options.heads {
        Heads::All => ProblemType::read(&json).map_err(config_error)?,
        Heads::None => None,
    };
    let description = Description {
        model_type: format.model_type,
        outputs: OutputNames::of(&names, &config),
        config,
        special,
        generation,
        last_hidden_state: format.last_hidden_state,
        labels: config_json::label_names(&json),
        problem_type,
    };
    Ok((names, description))
}

/// The format of a config.json, by its `model_type` and that of its decoder.
fn find_format(json: &Value, path: &Path) -> Result<&'static Format, CheckpointError> {
    let supported = || {
        let mut all: Vec<&str> = FORMATS.iter().map(|format| format.model_type).collect();
        all.dedup();
        all
    };
    let Some(model_type) = json["model_type"].as_str() else {
        return Err(CheckpointError::NoType {
            path: path.to_owned(),
            supported: supported(),
        });
    };
    let formats: Vec<&Format> = FORMATS
        .iter()
        .filter(|format| format.model_type == model_type)
        .collect();
    if formats.is_empty() {
        return Err(CheckpointError::UnknownType {
            path: path.to_owned(),
            model_type: model_type.to_owned(),
            supported: supported(),
        });
    }
    let decoder = &json["decoder"]["model_type"];
    let matches = |format: &&&Format| format.decoder.is_none_or(|it| *decoder == it);
    formats.iter().find(matches).copied().ok_or_else(|| {
        let known: Vec<&str> = formats.iter().filter_map(|it| it.decoder).collect();
        let known = known.join(", ");
        CheckpointError::Config {
            path: path.to_owned(),
            problem: format!(
                "decoder.model_type {decoder} is not supported; supported are {known}"
            ),
        }
    })
}
