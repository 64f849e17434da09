//! The model of a command: found, fetched if it is a hub model, and loaded.

use std::path::{Path, PathBuf};

use anyhow::Result;
use attentive::hub::FileSet;
use attentive::pretrained::Loader;
use attentive::{Pretrained, hub_id, locate};

use crate::arguments::ModelArguments;
use crate::downloads::Downloads;

/// The folder or file of a model.
pub fn find(model: &Path, files: FileSet) -> Result<PathBuf> {
    let mut downloads = Downloads::of(model);
    Ok(locate(model, files, &mut |event| downloads.on(&event))?)
}

/// Loads a model with its heads.
pub fn load(arguments: &ModelArguments) -> Result<Pretrained> {
    load_by(Loader::new(), arguments)
}

/// Loads a model without its heads.
pub fn load_without_heads(arguments: &ModelArguments) -> Result<Pretrained> {
    load_by(Loader::new().without_heads(), arguments)
}

fn load_by(loader: Loader, arguments: &ModelArguments) -> Result<Pretrained> {
    let mut downloads = Downloads::of(&arguments.model);
    let mut loader = loader
        .device(&arguments.device.device)
        .on_download(move |event| downloads.on(&event));
    if let Some(model_type) = &arguments.model_type {
        loader = loader.model_type(model_type);
    }
    if let Some(config) = &arguments.config {
        loader = loader.config(config);
    }
    if let Some(tokenizer) = &arguments.tokenizer {
        loader = loader.tokenizer(tokenizer);
    }
    Ok(loader.load(&arguments.model)?)
}

impl Downloads {
    fn of(model: &Path) -> Self {
        Self::new(hub_id(model).as_ref())
    }
}
