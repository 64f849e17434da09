//! GGUF files, as llama.cpp reads them: settings, weights and tokenizer in one file. They are read, and not written: what was
//! read is saved as a folder.
//!
//! An [`Architecture`] is to these files what a `Format` is to folders. Settings that an architecture does not know are
//! refused by name, since a model without them would be another one.

mod frequencies;
mod keys;
mod llama;

use std::io::Read;
use std::path::Path;

use attentive_formats::gguf as file;
use attentive_formats::gguf::Metadata;
use burn::tensor::Device;

use super::table::{Names, Row, Table};
use super::{
    CheckpointError, Description, GenerationSettings, LastState, OutputNames, SpecialTokens,
    TensorFile,
};
use crate::{Model, ModelConfig};
use keys::Keys;

/// How one architecture is written down by llama.cpp.
struct Architecture {
    /// Its `general.architecture`, with which the keys of its settings begin.
    name: &'static str,
    /// From the keys, and what tensors there are, to our settings.
    read: fn(&Keys, &TensorFile) -> Result<ModelConfig, String>,
    /// The names of the tensors, theirs and ours.
    table: Table,
    /// The names of the head's tensors.
    heads: &'static [Row],
}

static ARCHITECTURES: [Architecture; 1] = [llama::ARCHITECTURE];

/// Whether a path is meant to be a GGUF file: by its name, or by how it begins.
pub fn is_gguf(path: &Path) -> bool {
    let begins = || {
        let mut four = [0; 4];
        let opened = std::fs::File::open(path).and_then(|mut it| it.read_exact(&mut four));
        opened.is_ok() && four == *b"GGUF"
    };
    let named = path
        .extension()
        .is_some_and(|it| it.eq_ignore_ascii_case("gguf"));
    !path.is_dir() && (named || begins())
}

/// Reads what a file says of its model.
pub(super) fn describe(path: &Path) -> Result<Description, CheckpointError> {
    Ok(open(path)?.2)
}

/// Loads the model of a file.
pub(super) fn load(path: &Path, device: &Device) -> Result<(Model, Description), CheckpointError> {
    let (architecture, tensors, description) = open(path)?;
    let model = super::built(&description.config, path, device)?;
    let names = Names {
        table: &architecture.table,
        heads: architecture.heads,
        bare: false,
        known: Vec::new(),
        patches: None,
        head_width: description.config.head_width(),
        width: description.config.width,
        group: 1,
        gated: true,
        untied: false,
    };
    let filled = super::filled(model, &names, &tensors, "metadata")?;
    Ok((filled, description))
}

fn open(path: &Path) -> Result<(&'static Architecture, TensorFile, Description), CheckpointError> {
    let wrong = |problem: String| CheckpointError::Config {
        path: path.to_owned(),
        problem,
    };
    let (set, metadata) = file::open(path)?;
    let tensors = TensorFile::of_set(path, set);
    let architecture = architecture(&metadata).map_err(wrong)?;
    let keys = Keys {
        metadata: &metadata,
        architecture: architecture.name,
    };
    let config = (architecture.read)(&keys, &tensors).map_err(wrong)?;
    let checked = config.validate();
    checked.map_err(|error| wrong(error.to_string()))?;
    let description = Description {
        model_type: architecture.name,
        config,
        special: special(&metadata).map_err(wrong)?,
        generation: GenerationSettings::default(),
        last_state: LastState::Normed,
        outputs: OutputNames::PLAIN,
        labels: Vec::new(),
        problem: None,
    };
    Ok((architecture, tensors, description))
}

fn architecture(metadata: &Metadata) -> Result<&'static Architecture, String> {
    const KEY: &str = "general.architecture";
    let name = metadata
        .text(KEY)
        .ok_or_else(|| format!("{KEY} is missing; give a file that holds a language model"))?;
    let mut all = ARCHITECTURES.iter();
    all.find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|it| it.name).collect();
        format!(
            "{KEY} {name:?} is not supported; supported are {}",
            names.join(", ")
        )
    })
}

/// Ids with a meaning for generation. A turn or a message ends a text too, as in llama.cpp.
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
    let mut end = Vec::new();
    for name in ["eos", "eot", "eom"] {
        end.extend(id(name)?.filter(|it| !end.contains(it)));
    }
    Ok(SpecialTokens {
        beginning: id("bos")?,
        end,
        ..SpecialTokens::default()
    })
}
