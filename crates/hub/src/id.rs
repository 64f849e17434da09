//! The names of models on the hub: `owner/name`, or `owner/name@revision`.

use std::fmt;
use std::str::FromStr;

use crate::HubError;

/// The branch that is meant where none is named.
const MAIN: &str = "main";

/// The longest owner or name, as the hub has it.
const LONGEST: usize = 96;

/// A model of the hub, at a revision. What is in it can be part of a path: it leads nowhere but down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelId {
    repo: String,
    revision: String,
}

impl ModelId {
    /// The owner and the name, with a slash between.
    pub fn repo(&self) -> &str {
        &self.repo
    }

    /// A branch, a tag or a commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }
}

impl FromStr for ModelId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let refused = |problem| HubError::Id {
            // Enough to be recognised.
            given: text.chars().take(2 * LONGEST).collect(),
            problem,
        };
        let (repo, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let Some((owner, name)) = repo.split_once('/') else {
            return Err(refused("it has no slash between owner and name"));
        };
        if name.contains('/') {
            return Err(refused("it has more than one slash"));
        }
        if !is_part(owner) || !is_part(name) || name.ends_with(".git") {
            return Err(refused(
                "owner and name are letters, digits, `-`, `_` and `.`, which begin and end with none of `-` and `.`",
            ));
        }
        if !is_revision(revision) {
            return Err(refused(
                "a revision is a branch, a tag or a commit of letters, digits, `-`, `_`, `.` and `/`",
            ));
        }
        Ok(Self {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str(&self.repo)?;
        match self.revision.as_str() {
            MAIN => Ok(()),
            revision => write!(to, "@{revision}"),
        }
    }
}

/// The cache joins owner and name by two dashes, so neither may hold them: two models would share a folder.
fn is_part(text: &str) -> bool {
    let edge = |text: char| text == '-' || text == '.';
    is_file_name(text)
        && text.len() <= LONGEST
        && !text.starts_with(edge)
        && !text.ends_with(edge)
        && !text.contains("--")
        && !text.contains("..")
}

/// Branches may have folders, as `refs/pr/1` does.
fn is_revision(text: &str) -> bool {
    text.len() <= 255 && text.split('/').all(is_file_name)
}

/// Whether a text is a name that stays where it is put, and that an address may hold as it is.
pub(crate) fn is_file_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes().all(plain) && !text.is_empty() && text.len() <= 255 && text != "." && text != ".."
}

/// Whether a revision is a commit, which never means anything else later.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_owner_and_name_and_perhaps_a_revision() {
        for (text, repo, revision) in [
            ("owner/name", "owner/name", "main"),
            ("o/gpt_2.5-x", "o/gpt_2.5-x", "main"),
            ("o/n@v1.0", "o/n", "v1.0"),
            ("o/n@refs/pr/1", "o/n", "refs/pr/1"),
        ] {
            let id: ModelId = text.parse().unwrap();
            assert_eq!((id.repo(), id.revision()), (repo, revision));
            assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn names_that_would_leave_the_cache_are_refused() {
        for text in [
            "gpt2",
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "./b",
            "a/.",
            "a--b/c",
            "a/b.git",
            "a b/c",
            "a/b@",
            "a/b@..",
            "a/b@../../c",
            "a/b@/c",
            "a/b@c//d",
            "a/b@c?d",
            "a/b@c%2fd",
            "a\\b/c",
            "a/b\0",
            "ä/b",
        ] {
            assert!(text.parse::<ModelId>().is_err(), "{text:?}");
        }
    }
}
