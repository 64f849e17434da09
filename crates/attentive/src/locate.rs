//! Where a model is: a folder, a .gguf file, or a model of the hub.

use std::path::{Path, PathBuf};

use attentive_hub::{FileSet, Listener, ModelId, Settings, resolve};

use crate::PretrainedError;

/// The folder or file of a model, downloaded if it is a hub model that is not in the cache. A path that exists is never taken for
/// a hub id.
pub fn locate(
    model: &Path,
    files: FileSet,
    on_download: &mut Listener,
) -> Result<PathBuf, PretrainedError> {
    if model.exists() {
        return Ok(model.to_owned());
    }
    let Some(id) = hub_id(model) else {
        return Err(PretrainedError::NotFound {
            path: model.to_owned(),
        });
    };
    let settings = Settings::from_environment()?;
    resolve(&id, files, &settings, on_download).map_err(|source| PretrainedError::Hub {
        path: model.to_owned(),
        source,
    })
}

/// The hub id that a path could be.
pub fn hub_id(model: &Path) -> Option<ModelId> {
    model.to_str()?.parse().ok()
}
