//! The folder of a model: local, or fetched from the hub.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use attentive::hub::{FileSet, ModelId, Settings, resolve};

use crate::downloads::Downloads;

/// A path that exists is never taken for a hub id.
pub fn find(given: &Path, wanted: FileSet) -> Result<PathBuf> {
    if given.exists() {
        return Ok(given.to_owned());
    }
    let path = given.display();
    let Some(id) = id(given) else {
        bail!(
            "{path} is not a model folder; give a folder that holds config.json and model.safetensors, \
             or a hub model as owner/name"
        );
    };
    let settings = Settings::from_environment()?;
    let mut downloads = Downloads::new(&id);
    resolve(&id, wanted, &settings, &mut |event| downloads.on(&event))
        .with_context(|| format!("{path} is not a local folder, and as a hub model"))
}

fn id(given: &Path) -> Option<ModelId> {
    given.to_str()?.parse().ok()
}
