//! The model of a command: found, fetched if it is a hub model, and loaded.

use std::path::{Path, PathBuf};

use anyhow::Result;
use attentive::hub::FileSet;
use attentive::pretrained::Loader;
use attentive::{Pretrained, hub_id, locate};

use crate::arguments::{ModelArguments, TokenizerArgument};
use crate::downloads::Downloads;
use crate::failure::Usage;

/// The folder or file of a model.
pub fn find(model: &Path, files: FileSet) -> Result<PathBuf> {
    let mut downloads = Downloads::of(model);
    Ok(locate(model, files, &mut |event| downloads.on(&event))?)
}

/// Loads a model with its heads, and another tokenizer if one is given.
pub fn load(
    arguments: &ModelArguments,
    tokenizer: Option<&TokenizerArgument>,
) -> Result<Pretrained> {
    load_by(Loader::new(), arguments, tokenizer)
}

/// Loads a model without its heads.
pub fn load_without_heads(
    arguments: &ModelArguments,
    tokenizer: &TokenizerArgument,
) -> Result<Pretrained> {
    load_by(Loader::new().without_heads(), arguments, Some(tokenizer))
}

fn load_by(
    loader: Loader,
    arguments: &ModelArguments,
    tokenizer: Option<&TokenizerArgument>,
) -> Result<Pretrained> {
    let mut downloads = Downloads::of(&arguments.model);
    let mut loader = loader
        .device(&arguments.device.device)
        .on_download(move |event| downloads.on(&event));
    if let Some(model_type) = &arguments.model_type {
        loader = loader.model_type(model_type);
    }
    if let Some(config) = &arguments.config {
        if !config.is_file() {
            let message = format!(
                "--config: there is no file {}; check the path",
                config.display()
            );
            return Err(Usage(message).into());
        }
        loader = loader.config(config);
    }
    if let Some(path) = tokenizer.and_then(|it| it.tokenizer.as_ref()) {
        if !path.exists() {
            let message = format!(
                "--tokenizer: there is no {}; give a folder with the tokenizer's files, or a tokenizer.json",
                path.display()
            );
            return Err(Usage(message).into());
        }
        loader = loader.tokenizer(path);
    }
    if let Some(lower_case) = tokenizer.and_then(|it| it.lower_case) {
        loader = loader.lower_case(lower_case);
    }
    Ok(loader.load(&arguments.model)?)
}

impl Downloads {
    fn of(model: &Path) -> Self {
        Self::new(hub_id(model).as_ref())
    }
}
