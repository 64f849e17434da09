//! Model ids: `owner/name`, or `owner/name@revision`.

use std::fmt;
use std::str::FromStr;

use crate::HubError;

/// The default revision.
const DEFAULT_REVISION: &str = "main";

/// The hub's limit for owners and names.
const MAX_LENGTH: usize = 96;

/// A model of the hub at a revision. Both are safe path components: they cannot escape a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelId {
    repo: String,
    revision: String,
}

impl ModelId {
    /// `owner/name`.
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
            // Truncated, but long enough to recognize it.
            given: text.chars().take(2 * MAX_LENGTH).collect(),
            problem,
        };
        let (repo, revision) = text.split_once('@').unwrap_or((text, DEFAULT_REVISION));
        let Some((owner, name)) = repo.split_once('/') else {
            return Err(refused("it has no slash between owner and name"));
        };
        if name.contains('/') {
            return Err(refused("it has more than one slash"));
        }
        if !is_repo_part(owner) || !is_repo_part(name) || name.ends_with(".git") {
            return Err(refused(
                "owner and name are letters, digits, `-`, `_` and `.`, and neither start nor end with `-` or `.`",
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
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.repo)?;
        match self.revision.as_str() {
            DEFAULT_REVISION => Ok(()),
            revision => write!(formatter, "@{revision}"),
        }
    }
}

/// The cache joins owner and name by `--`, so neither may contain it: two models could share a folder.
fn is_repo_part(text: &str) -> bool {
    let is_edge = |text: char| text == '-' || text == '.';
    is_file_name(text)
        && text.len() <= MAX_LENGTH
        && !text.starts_with(is_edge)
        && !text.ends_with(is_edge)
        && !text.contains("--")
        && !text.contains("..")
}

/// Revisions may contain slashes, such as `refs/pr/1`.
fn is_revision(text: &str) -> bool {
    text.len() <= 255 && text.split('/').all(is_file_name)
}

/// Whether a string is a plain file name, safe in paths and URLs.
pub(crate) fn is_file_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes().all(is_allowed)
        && !text.is_empty()
        && text.len() <= 255
        && text != "."
        && text != ".."
}

/// Whether a revision is a commit hash, which is immutable.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_an_owner_a_name_and_an_optional_revision() {
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
    fn names_that_would_escape_the_cache_are_refused() {
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
