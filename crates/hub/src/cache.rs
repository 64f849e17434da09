//! The cache that Hugging Face's programs share, one folder per repository.
//!
//! ```text
//! models--owner--name/
//!   blobs/ETAG                  what files hold, once for all commits
//!   refs/REVISION               the commit that a branch was last seen at
//!   snapshots/COMMIT/FILE       links to blobs: a model folder
//! .locks/models--owner--name/   one lock per blob that is being fetched
//! ```

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use crate::id::{is_commit, is_file_name};
use crate::{Event, HubError, Listener, ModelId, Settings, Wanted};

/// The folder of one repository.
pub(crate) struct RepoCache {
    layout: CacheRepo,
    folder: PathBuf,
    locks: PathBuf,
    revision: String,
}

/// The repository of an id, as hf-hub names it.
pub(crate) fn repo(id: &ModelId, revision: &str) -> Repo {
    Repo::with_revision(id.repo().to_owned(), RepoType::Model, revision.to_owned())
}

impl RepoCache {
    pub(crate) fn new(id: &ModelId, settings: &Settings) -> Self {
        let repo = repo(id, id.revision());
        let name = repo.folder_name();
        Self {
            layout: Cache::new(settings.cache.clone()).repo(repo),
            folder: settings.cache.join(&name),
            locks: settings.cache.join(".locks").join(name),
            revision: id.revision().to_owned(),
        }
    }

    /// The snapshot of the revision, as it was last seen; or what it lacks.
    pub(crate) fn held(&self, wanted: Wanted) -> Result<PathBuf, String> {
        let commit = match is_commit(&self.revision) {
            true => Some(self.revision.clone()),
            false => std::fs::read_to_string(self.reference()).ok(),
        };
        let commit = commit.map(|text| text.trim().to_owned());
        let Some(commit) = commit.filter(|commit| is_file_name(commit)) else {
            return Err("config.json".to_owned());
        };
        let folder = self.snapshot(&commit);
        match wanted.missing(&folder) {
            None => Ok(folder),
            Some(missing) => Err(missing),
        }
    }

    /// The model folder of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.layout.pointer_path(commit)
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.layout.blob_path(etag)
    }

    fn reference(&self) -> PathBuf {
        self.folder.join("refs").join(&self.revision)
    }

    /// Notes at which commit the revision is. This is the last step, so that an earlier snapshot serves until a newer one
    /// is whole.
    pub(crate) fn set_commit(&self, commit: &str) -> Result<(), HubError> {
        let path = self.reference();
        let known = std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == commit);
        if known || commit == self.revision {
            return Ok(());
        }
        create_parent(&path)?;
        // Beside it and renamed, as a reader may come at any moment. The process makes the name its own.
        let beside = path.with_file_name(format!(".{}.{commit}", std::process::id()));
        std::fs::write(&beside, commit)
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(|error| HubError::of_file(&path, error))
    }

    /// Puts a blob under its name into the snapshot of a commit.
    pub(crate) fn link(&self, etag: &str, commit: &str, name: &str) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(name);
        let failed = |error| HubError::of_file(&path, error);
        if path.exists() {
            return Ok(());
        }
        create_parent(&path)?;
        // A link whose blob was removed is there and yet does not exist.
        if path.is_symlink() {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        match put(&self.blob(etag), etag, name, &path) {
            // Another process was faster, with the same.
            Err(_) if path.exists() => Ok(()),
            result => result.map_err(failed),
        }
    }

    /// Keeps other processes from fetching the same blob, until the file is dropped.
    pub(crate) fn lock(&self, etag: &str, name: &str, on: &mut Listener) -> Result<File, HubError> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_parent(&path)?;
        let failed = |error| HubError::of_file(&path, error);
        let mut options = File::options();
        let options = options.create(true).write(true).truncate(false);
        let file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                on(Event::Waiting { file: name });
                file.lock().map_err(failed)?;
                Ok(file)
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// A relative link, so that the cache can be moved as a whole.
#[cfg(unix)]
fn put(_blob: &Path, etag: &str, name: &str, path: &Path) -> std::io::Result<()> {
    let up = "../".repeat(2 + name.matches('/').count());
    std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), path)
}

/// Elsewhere symbolic links need rights that a user may not have; a second name for the same bytes needs none.
#[cfg(not(unix))]
fn put(blob: &Path, _etag: &str, _name: &str, path: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, path)
}

/// Makes the folder of a file.
pub(crate) fn create_parent(path: &Path) -> Result<(), HubError> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(|error| HubError::of_file(folder, error))
}
