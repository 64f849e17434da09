//! The shared Hugging Face cache, one folder per repository.
//!
//! ```text
//! models--owner--name/
//!   blobs/ETAG                  file contents, shared by all commits
//!   refs/REVISION               the last known commit of a branch or tag
//!   snapshots/COMMIT/FILE       symlinks to blobs: a model folder
//! .locks/models--owner--name/   one lock per blob that is being downloaded
//! ```

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use crate::id::{is_commit, is_file_name};
use crate::{Event, FileSet, HubError, Listener, ModelId, Settings};

/// The cache of one repository.
pub(crate) struct RepoCache {
    layout: CacheRepo,
    folder: PathBuf,
    locks: PathBuf,
    revision: String,
}

/// The hf-hub repository of an id.
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

    /// The cached snapshot of the revision; the error is the first missing file.
    pub(crate) fn cached(&self, file_set: FileSet) -> Result<PathBuf, String> {
        let commit = match is_commit(&self.revision) {
            true => Some(self.revision.clone()),
            false => std::fs::read_to_string(self.ref_path()).ok(),
        };
        let commit = commit.map(|text| text.trim().to_owned());
        let Some(commit) = commit.filter(|commit| is_file_name(commit)) else {
            return Err("config.json".to_owned());
        };
        let folder = self.snapshot(&commit);
        match file_set.missing(&folder) {
            None => Ok(folder),
            Some(missing) => Err(missing),
        }
    }

    /// The snapshot folder of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.layout.pointer_path(commit)
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.layout.blob_path(etag)
    }

    fn ref_path(&self) -> PathBuf {
        self.folder.join("refs").join(&self.revision)
    }

    /// Records the commit of the revision in `refs`. This is the last step, so that the earlier snapshot is used until a newer
    /// one is complete.
    pub(crate) fn write_ref(&self, commit: &str) -> Result<(), HubError> {
        let path = self.ref_path();
        let known = std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == commit);
        if known || commit == self.revision {
            return Ok(());
        }
        create_parent(&path)?;
        // Written to a temporary file and renamed, as there may be concurrent readers. The process id makes it unique.
        let temporary = path.with_file_name(format!(".{}.{commit}", std::process::id()));
        std::fs::write(&temporary, commit)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|error| HubError::io(&path, error))
    }

    /// Links a blob into the snapshot of a commit.
    pub(crate) fn link(&self, etag: &str, commit: &str, name: &str) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(name);
        let failed = |error| HubError::io(&path, error);
        if path.exists() {
            return Ok(());
        }
        create_parent(&path)?;
        // A dangling link, whose blob was removed.
        if path.is_symlink() {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        match create_link(&self.blob(etag), etag, name, &path) {
            // Another process created the same link first.
            Err(_) if path.exists() => Ok(()),
            result => result.map_err(failed),
        }
    }

    /// Locks a blob against concurrent downloads, until the file is dropped.
    pub(crate) fn lock(&self, etag: &str, name: &str, on: &mut Listener) -> Result<File, HubError> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_parent(&path)?;
        let failed = |error| HubError::io(&path, error);
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
fn create_link(_blob: &Path, etag: &str, name: &str, path: &Path) -> std::io::Result<()> {
    let up = "../".repeat(2 + name.matches('/').count());
    std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), path)
}

/// On Windows symbolic links need privileges that hard links do not.
#[cfg(not(unix))]
fn create_link(blob: &Path, _etag: &str, _name: &str, path: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, path)
}

/// Creates the folder of a file.
pub(crate) fn create_parent(path: &Path) -> Result<(), HubError> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(|error| HubError::io(folder, error))
}
