//! GGUF, llama.cpp's format: config, weights and tokenizer in one file. Files are only read; models are saved as folders.
//!
//! An [`Architecture`] is to these files what a `Format` is to folders. Unknown settings are refused by name, since they would
//! change the model.

mod keys;
mod llama;
mod rope_scaling;

use std::io::Read;
use std::path::Path;

use attentive_formats::gguf::{GgufFile, Metadata};
use burn::tensor::Device;

use super::name_table::{NameTable, TensorNames, TensorRow};
use super::{CheckpointError, Description, LastHiddenState, OutputNames, TensorFile};
use attentive_generation::{GenerationSettings, SpecialTokens};
use attentive_model::{Model, ModelConfig};
use keys::Keys;

/// One of llama.cpp's architectures.
struct Architecture {
    /// Its `general.architecture`, the prefix of its keys.
    name: &'static str,
    /// Reads the config from the keys and from which tensors there are.
    read: fn(&Keys, &TensorFile) -> Result<ModelConfig, String>,
    /// Tensor names.
    table: NameTable,
    /// The tensor names of the head.
    heads: &'static [TensorRow],
}

static ARCHITECTURES: [Architecture; 1] = [llama::ARCHITECTURE];

/// Whether a path is a GGUF file, by its extension or its magic number.
pub fn is_gguf(path: &Path) -> bool {
    let has_magic = || {
        let mut magic = [0; 4];
        let opened = std::fs::File::open(path).and_then(|mut it| it.read_exact(&mut magic));
        opened.is_ok() && magic == *b"GGUF"
    };
    let named = path
        .extension()
        .is_some_and(|it| it.eq_ignore_ascii_case("gguf"));
    !path.is_dir() && (named || has_magic())
}

/// Describes the model of a file.
pub(super) fn describe(path: &Path) -> Result<Description, CheckpointError> {
    Ok(open(path)?.2)
}

/// Loads the model of a file.
pub(super) fn load(path: &Path, device: &Device) -> Result<(Model, Description), CheckpointError> {
    let (architecture, tensors, description) = open(path)?;
    let model = crate::load::build(&description.config, path, device)?;
    let names = TensorNames {
        table: &architecture.table,
        heads: architecture.heads,
        base_model: false,
        known: Vec::new(),
        patches: None,
        head_width: description.config.stack.head_width(),
        width: description.config.stack.width,
        group: 1,
        gated: true,
        untied: false,
        ignores_heads: false,
    };
    let model = crate::load::load_weights(model, &names, &tensors, "metadata")?;
    Ok((model, description))
}

fn open(path: &Path) -> Result<(&'static Architecture, TensorFile, Description), CheckpointError> {
    let config_error = |problem: String| CheckpointError::Config {
        path: path.to_owned(),
        problem,
    };
    // The architecture comes first: of another one, tensors and keys may be anything.
    let file = GgufFile::open(path)?;
    let architecture =
        architecture(file.metadata()).map_err(|problem| CheckpointError::Unsupported {
            path: path.to_owned(),
            problem,
        })?;
    let (set, metadata) = file.tensors()?;
    let tensors = TensorFile::of_set(path, set);
    let keys = Keys {
        metadata: &metadata,
        architecture: architecture.name,
    };
    let config = (architecture.read)(&keys, &tensors).map_err(config_error)?;
    let checked = config.validate();
    checked.map_err(|error| config_error(error.to_string()))?;
    let description = Description {
        model_type: architecture.name,
        config,
        special: special(&metadata).map_err(config_error)?,
        generation: GenerationSettings::default(),
        last_hidden_state: LastHiddenState::AfterFinalNorm,
        outputs: OutputNames::PLAIN,
        labels: Vec::new(),
        problem_type: None,
    };
    Ok((architecture, tensors, description))
}

/// The architecture of a file; the error says what is not supported.
fn architecture(metadata: &Metadata) -> Result<&'static Architecture, String> {
    const KEY: &str = "general.architecture";
    let name = metadata
        .string(KEY)
        .ok_or_else(|| format!("{KEY} is missing; use a file with a language model"))?;
    let mut all = ARCHITECTURES.iter();
    let architecture = all.find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|it| it.name).collect();
        format!(
            "{KEY} {name:?} is not supported; supported are {}",
            names.join(", ")
        )
    })?;
    match metadata.integer("split.count") {
        Some(count) if count > 1 => Err(format!(
            "a model that is split into {count} files is not supported; merge them with llama-gguf-split"
        )),
        _ => Ok(architecture),
    }
}

/// Special token ids. As in llama.cpp, the end of a turn or a message ends generation too.
fn special(metadata: &Metadata) -> Result<SpecialTokens, String> {
    let id = |name: &str| {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(value) = metadata.get(&key) else {
            return Ok(None);
        };
        let id = metadata.integer(&key).and_then(|it| u32::try_from(it).ok());
        let problem = || format!("{key} is {}, and must be a token id", value.type_name());
        id.map(Some).ok_or_else(problem)
    };
    let mut eos = Vec::new();
    for name in ["eos", "eot", "eom"] {
        eos.extend(id(name)?.filter(|it| !eos.contains(it)));
    }
    Ok(SpecialTokens {
        bos: id("bos")?,
        eos,
        ..SpecialTokens::default()
    })
}
