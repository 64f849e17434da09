//! Files that are replaced whole or not at all: written beside, synced, renamed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Replaces the contents of `path`; a crash or a full disk leaves the old contents. A symbolic link stays, and the file
/// that it leads to is replaced; what is not a regular file (a folder, a device) is refused.
pub fn replace_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    replace_file_with(path, |beside| fs::write(beside, contents))
}

/// Replaces `path` by what `write` puts into the path that it is given.
pub fn replace_file_with<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let path = &regular_file(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.partial"));
    let written = write(&beside).and_then(|()| {
        File::open(&beside)?.sync_all()?;
        fs::rename(&beside, path)?;
        sync_folder(path)?;
        Ok(())
    });
    if written.is_err() {
        // The error worth telling is the first; a leftover is overwritten next time.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// The file that `path` leads to, which need not exist, but must not be anything else than a file.
fn regular_file(path: &Path) -> io::Result<PathBuf> {
    let target = match (fs::canonicalize(path), fs::read_link(path)) {
        (Ok(target), _) => target,
        // A link to a file that is still to come.
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

/// A rename is only as durable as the folder that records it. Windows has no such call and needs none.
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
    fn a_failed_write_leaves_the_old_contents_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.txt");
        replace_file(&path, b"old").unwrap();
        let failed: io::Result<()> = replace_file_with(&path, |beside| {
            fs::write(beside, b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_and_what_is_no_file_is_refused() {
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
