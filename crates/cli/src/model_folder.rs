//! Where a model is: in a folder, or on the hub, from where it is fetched into one. Every command that takes a model asks here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use attentive::hub::{ModelId, Settings, Wanted, resolve};

use crate::downloads::Downloads;

/// The folder of the model that was given. What exists is a folder, even if it could be an id.
pub fn find(given: &Path, wanted: Wanted) -> Result<PathBuf> {
    if given.exists() {
        return Ok(given.to_owned());
    }
    let place = given.display();
    let Some(id) = id(given) else {
        bail!(
            "{place} is not a model folder; give a folder that holds config.json and model.safetensors, \
             or a model of the hub as owner/name"
        );
    };
    let settings = Settings::from_environment()?;
    let mut downloads = Downloads::new(&id);
    resolve(&id, wanted, &settings, &mut |event| downloads.on(&event))
        .with_context(|| format!("{place} is no folder here, and as a model of the hub"))
}

fn id(given: &Path) -> Option<ModelId> {
    given.to_str()?.parse().ok()
}
