//! Where a command writes a file: checked before the work whose result it holds.

use std::fs::File;
use std::path::Path;

use crate::failure::Usage;

/// Refuses a path that cannot be written, or that is a file of the model.
pub fn check(option: &str, path: &Path, model: &Path) -> Result<(), Usage> {
    let shown = path.display();
    if path.is_dir() {
        return Err(Usage(format!(
            "{option}: {shown} is a folder; name a file in it"
        )));
    }
    let folder = match path.parent().filter(|it| !it.as_os_str().is_empty()) {
        Some(folder) => folder,
        None => Path::new("."),
    };
    if !folder.is_dir() {
        let folder = folder.display();
        let message =
            format!("{option}: there is no folder {folder}; make it, or name another file");
        return Err(Usage(message));
    }
    if is_in(path, model) {
        let message = format!("{option}: {shown} is a file of the model; name another file");
        return Err(Usage(message));
    }
    let probe = folder.join(format!(".attentive-{}.probe", std::process::id()));
    let created = File::create(&probe);
    let _ = std::fs::remove_file(&probe);
    match created {
        Ok(_) => Ok(()),
        Err(error) => Err(Usage(format!(
            "{option}: the folder of {shown} cannot be written ({error}); name another file"
        ))),
    }
}

/// Refuses to overwrite the inputs of a command.
pub fn check_not_input(option: &str, path: &Path, inputs: &Path) -> Result<(), Usage> {
    let (save, inputs) = (path.canonicalize(), inputs.canonicalize());
    match (save, inputs) {
        (Ok(save), Ok(inputs)) if save == inputs => {
            let path = path.display();
            Err(Usage(format!(
                "{option}: {path} holds the inputs; name another file"
            )))
        }
        _ => Ok(()),
    }
}

/// Whether an existing file is in the model's folder, or is the model. Files of the hub cache are symlinks: both the link and its
/// target count.
fn is_in(path: &Path, model: &Path) -> bool {
    let (Ok(save), Ok(model)) = (path.canonicalize(), model.canonicalize()) else {
        return false;
    };
    let parent = std::path::absolute(path).ok();
    let parent = parent.and_then(|path| path.parent()?.canonicalize().ok());
    save.starts_with(&model) || parent.is_some_and(|it| it.starts_with(&model))
}
