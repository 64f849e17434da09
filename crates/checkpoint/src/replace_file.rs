//! Atomic file replacement: write a temporary file, sync, rename.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Replaces the contents of `path`; after a crash or on a full disk the old contents remain. A symlink is kept and its target
/// replaced; anything but a regular file (a folder, a device) is an error.
pub fn replace_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    replace_file_with(path, |temporary| fs::write(temporary, contents))
}

/// Replaces `path` by what `write` writes to a temporary path.
pub fn replace_file_with<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let path = &regular_file(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.partial"));
    let written = write(&temporary).and_then(|()| {
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_folder(path)?;
        Ok(())
    });
    if written.is_err() {
        // The first error is the one to report; a leftover file is overwritten next time.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The file that `path` resolves to. It need not exist, but must be a regular file if it does.
fn regular_file(path: &Path) -> io::Result<PathBuf> {
    let target = match (fs::canonicalize(path), fs::read_link(path)) {
        (Ok(target), _) => target,
        // A symlink whose target does not exist yet.
        (_, Ok(link)) => path.parent().unwrap_or(Path::new("")).join(link),
        _ => path.to_owned(),
    };
    match fs::metadata(&target) {
        Ok(found) if !found.is_file() => Err(io::Error::other(
            "it is not a regular file, so it cannot be replaced",
        )),
        _ => Ok(target),
    }
}

/// A rename is durable once its folder is synced. Windows has no such call and needs none.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_contents_and_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.txt");
        replace_file(&path, b"old").unwrap();
        let failed: io::Result<()> = replace_file_with(&path, |temporary| {
            fs::write(temporary, b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn symlinks_are_kept_and_what_is_not_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        for contents in ["first", "second"] {
            replace_file(&link, contents.as_bytes()).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&target).unwrap(), contents);
        }
        assert!(replace_file(Path::new("/dev/null"), b"").is_err());
        assert!(replace_file(folder.path(), b"").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
