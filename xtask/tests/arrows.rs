//! The crates depend on each other exactly as ARCHITECTURE.md says, and only `kernels` and two other
//! files have unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Dependencies = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Lines such as "- `model` → `tensor`" or "- `text` → nothing".
fn documented() -> Dependencies {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let names = |part: &str| -> Vec<String> {
        part.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    text.lines()
        .filter(|line| line.starts_with("- `"))
        .filter_map(|line| line.split_once(" → "))
        .map(|(from, to)| (names(from).remove(0), names(to).into_iter().collect()))
        .collect()
}

/// The dependencies in the manifests, without dev-dependencies.
fn actual() -> Dependencies {
    let mut dependencies = Dependencies::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap();
        let manifest = std::fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        let (_, after) = manifest.split_once("\n[dependencies]\n").unwrap();
        let section = after.split("\n[").next().unwrap();
        let crates = section.lines().filter_map(|line| {
            let name = line.split(['.', ' ', '=']).next()?;
            match name {
                "attentive" => Some("attentive".to_owned()),
                name => name.strip_prefix("attentive-").map(str::to_owned),
            }
        });
        let name = folder.file_name().into_string().unwrap();
        dependencies.insert(name, crates.collect());
    }
    dependencies
}

#[test]
fn crates_depend_on_what_the_architecture_says() {
    let documented = documented();
    assert!(documented.len() > 5, "no dependencies in ARCHITECTURE.md");
    assert_eq!(actual(), documented);
}

/// The only files with unsafe code outside of `kernels`, by their crates.
const EXCEPTIONS: [(&str, &str); 2] = [("formats", "mapped.rs"), ("memory", "allocator.rs")];

#[test]
fn unsafe_code_is_in_kernels_and_in_two_files() {
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let file = EXCEPTIONS.iter().find(|(name, _)| folder.ends_with(name));
        if let Some((_, file)) = file {
            assert!(manifest.contains("unsafe_code = \"deny\""));
            let allowed = files_with_unsafe_code(&folder.join("src"));
            assert_eq!(allowed, [folder.join("src").join(file)]);
        }
        if folder.ends_with("kernels") || file.is_some() {
            // Each block says why it is sound.
            assert!(manifest.contains("undocumented_unsafe_blocks = \"deny\""));
            continue;
        }
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{}",
            folder.display()
        );
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}

/// The files that allow unsafe code where their crate denies it.
fn files_with_unsafe_code(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_unsafe_code(&path));
        } else if std::fs::read_to_string(&path)
            .unwrap()
            .contains("allow(unsafe_code)")
        {
            found.push(path);
        }
    }
    found
}
