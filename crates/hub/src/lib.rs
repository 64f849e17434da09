//! Downloads models of the Hugging Face hub into the shared Hugging Face cache.
//!
//! [`resolve`] looks up the commit of a revision, downloads its missing files, and returns the snapshot folder, which loads like
//! any model folder. Offline it opens no connection.
//!
//! Names from a server become part of a path only after validation.
//!
//! ```no_run
//! use attentive_hub::{FileSet, ModelId, Settings, resolve};
//!
//! # fn main() -> Result<(), attentive_hub::HubError> {
//! let id: ModelId = "openai-community/gpt2".parse()?;
//! let settings = Settings::from_environment()?;
//! let folder = resolve(&id, FileSet::Model, &settings, &mut |event| eprintln!("{event:?}"))?;
//! println!("{}", folder.display());
//! # Ok(())
//! # }
//! ```

mod cache;
mod download;
mod error;
mod event;
mod file_set;
mod id;
mod remote;
mod settings;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub use error::HubError;
pub use event::{Event, FileKind, Listener};
pub use file_set::{FileSet, assets};
pub use id::ModelId;
pub use settings::{Network, Proxy, Settings, Token};

use cache::RepoCache;
use remote::{Listing, Remote};

/// Resolves a model to a local snapshot folder that contains a set of files.
pub fn resolve(
    id: &ModelId,
    file_set: FileSet,
    settings: &Settings,
    on: &mut Listener,
) -> Result<PathBuf, HubError> {
    let cache = RepoCache::new(id, settings);
    let cached = cache.cached(file_set);
    if settings.network == Network::Offline {
        return cached.map_err(|missing| HubError::NotCached {
            id: id.to_string(),
            cache: settings.cache.clone(),
            missing,
        });
    }
    // A commit is immutable, so no request is needed.
    if let (Ok(folder), true) = (&cached, id::is_commit(id.revision())) {
        return Ok(folder.clone());
    }
    match (fetch(id, file_set, settings, &cache, on), cached) {
        (Err(problem), Ok(folder)) if problem.is_network_error() => {
            on(Event::UsingCache { problem: &problem });
            Ok(folder)
        }
        (result, _) => result,
    }
}

/// Updates the cache to the current commit of the revision.
fn fetch(
    id: &ModelId,
    file_set: FileSet,
    settings: &Settings,
    cache: &RepoCache,
    on: &mut Listener,
) -> Result<PathBuf, HubError> {
    let remote = Remote::new(id, settings)?;
    let Listing { commit, names } = remote.listing()?;
    let missing = |file| HubError::NoFile {
        id: id.to_string(),
        file,
    };
    file_set::check_config(&names).map_err(missing)?;
    let mut get = |name: &str| download::fetch(&remote, cache, &commit, name, on);
    for name in file_set.small_files() {
        if names.contains(name) {
            get(name)?;
        }
    }
    let folder = cache.snapshot(&commit);
    if file_set == FileSet::Model {
        let modules = file_set::module_settings(&folder);
        for name in modules.iter().filter(|name| names.contains(*name)) {
            get(name)?;
        }
        let weights = file_set::weights_of(&names).map_err(missing)?;
        get(weights)?;
        let shards = match file_set::is_index(weights) {
            true => {
                file_set::shards_of(&folder.join(weights)).map_err(|problem| HubError::Answer {
                    about: weights.to_owned(),
                    problem,
                })?
            }
            false => BTreeSet::new(),
        };
        // All shards are checked before downloading the first, as they are large.
        if let Some(shard) = shards.iter().find(|shard| !names.contains(*shard)) {
            return Err(missing(shard.clone()));
        }
        for shard in &shards {
            get(shard)?;
        }
    }
    cache.write_ref(&commit)?;
    Ok(folder)
}
