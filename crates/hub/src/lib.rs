//! Models of the Hugging Face hub: from an id to a folder of the cache that Hugging Face's programs share.
//!
//! [`resolve`] asks the hub which commit a revision is at, fetches the files of it that are needed and not yet there, and gives
//! the folder of the commit, which a loader of folders reads as any other. Offline it opens no connection.
//!
//! What a server says becomes part of a path only after it has been checked to be a plain name.
//!
//! ```no_run
//! use attentive_hub::{ModelId, Settings, Wanted, resolve};
//!
//! # fn main() -> Result<(), attentive_hub::HubError> {
//! let id: ModelId = "openai-community/gpt2".parse()?;
//! let settings = Settings::from_environment()?;
//! let folder = resolve(&id, Wanted::Model, &settings, &mut |event| eprintln!("{event:?}"))?;
//! println!("{}", folder.display());
//! # Ok(())
//! # }
//! ```

mod cache;
mod download;
mod error;
mod event;
mod id;
mod remote;
mod settings;
mod wanted;

use std::collections::BTreeSet;
use std::path::PathBuf;

pub use error::HubError;
pub use event::{Event, FileKind, Listener};
pub use id::ModelId;
pub use settings::{Network, Proxy, Settings, Token};
pub use wanted::{Wanted, companions};

use cache::RepoCache;
use remote::{Listing, Remote};

/// The folder of a model, with the files that are wanted of it.
pub fn resolve(
    id: &ModelId,
    wanted: Wanted,
    settings: &Settings,
    on: &mut Listener,
) -> Result<PathBuf, HubError> {
    let cache = RepoCache::new(id, settings);
    let held = cache.held(wanted);
    if settings.network == Network::Offline {
        return held.map_err(|missing| HubError::NotCached {
            id: id.to_string(),
            cache: settings.cache.clone(),
            missing,
        });
    }
    // A commit never changes, so there is nothing to ask.
    if let (Ok(folder), true) = (&held, id::is_commit(id.revision())) {
        return Ok(folder.clone());
    }
    match (fetch(id, wanted, settings, &cache, on), held) {
        (Err(problem), Ok(folder)) if problem.is_of_the_network() => {
            on(Event::CacheInstead { problem: &problem });
            Ok(folder)
        }
        (result, _) => result,
    }
}

/// Brings the cache to the commit that the revision is at now.
fn fetch(
    id: &ModelId,
    wanted: Wanted,
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
    wanted::config_of(&names).map_err(missing)?;
    let mut get = |name: &str| download::fetch(&remote, cache, &commit, name, on);
    for name in wanted.small_files() {
        if names.contains(name) {
            get(name)?;
        }
    }
    let folder = cache.snapshot(&commit);
    if wanted == Wanted::Model {
        let modules = wanted::module_settings(&folder);
        for name in modules.iter().filter(|name| names.contains(*name)) {
            get(name)?;
        }
        let form = wanted::weights_of(&names).map_err(missing)?;
        get(form)?;
        let shards = match wanted::is_index(form) {
            true => wanted::shards_of(&folder.join(form)).map_err(|problem| HubError::Answer {
                about: form.to_owned(),
                problem,
            })?,
            false => BTreeSet::new(),
        };
        // All are looked for before the first is fetched: they are large.
        if let Some(shard) = shards.iter().find(|shard| !names.contains(*shard)) {
            return Err(missing(shard.clone()));
        }
        for shard in &shards {
            get(shard)?;
        }
    }
    cache.set_commit(&commit)?;
    Ok(folder)
}
