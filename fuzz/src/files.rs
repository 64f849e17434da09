//! Several files as one input.
//!
//! ```text
//! === config.json
//! { "model_type": "gpt2" }
//! === vocab.txt
//! …
//! ```

use std::path::Path;

const MARKER: &[u8] = b"=== ";

/// Files by name, in the order of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub Vec<(String, Vec<u8>)>);

impl Files {
    /// Files from names and contents.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let owned = |(name, content): (&str, &[u8])| (name.to_owned(), content.to_owned());
        Self(files.into_iter().map(owned).collect())
    }

    /// Splits an input; anything before the first marker is dropped.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_prefix(MARKER) {
                Some(name) => {
                    // The line break before a marker belongs to it.
                    if let Some((_, content)) = files.last_mut() {
                        content.pop();
                    }
                    let name = String::from_utf8_lossy(name).trim_end().to_owned();
                    files.push((name, Vec::new()));
                }
                None => {
                    if let Some((_, content)) = files.last_mut() {
                        content.extend_from_slice(line);
                    }
                }
            }
        }
        Self(files)
    }

    /// The input of these files.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, (name, content)) in self.0.iter().enumerate() {
            if index > 0 {
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(MARKER);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'\n');
            bytes.extend_from_slice(content);
        }
        bytes
    }

    /// The content of a file, if it exists.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(it, _)| it == name);
        found.map(|(_, content)| content.as_slice())
    }

    /// Keeps only files with these names; others must not be written to disk.
    pub fn named(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| names.contains(&name.as_str()));
        self
    }

    /// Calls `run` with a temporary folder of the files.
    pub fn with_folder(&self, run: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        for (name, content) in &self.0 {
            let path = folder.path().join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).expect("a folder can be made");
            }
            std::fs::write(&path, content).expect("a file can be written");
        }
        run(folder.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_round_trip() {
        let files = Files::of([
            ("a.json", &b"{}\n"[..]),
            ("empty", b""),
            ("b", b"\n\xff=== \n"),
        ]);
        assert_eq!(Files::parse(&files.to_bytes()), files);
        assert_eq!(Files::parse(b"nothing\nhere"), Files::default());
    }
}
