//! Settings from the Hugging Face environment variables.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::HubError;

/// Cache, endpoint, token and network settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cache folder (`HF_HUB_CACHE`, or `hub` in `HF_HOME`).
    pub cache: PathBuf,
    /// The URL of the hub (`HF_ENDPOINT`), if it is not the default.
    pub endpoint: Option<String>,
    /// The access token (`HF_TOKEN`, or the file `token` in `HF_HOME`).
    pub token: Option<Token>,
    /// Whether to connect to the hub (`HF_HUB_OFFLINE`).
    pub network: Network,
    /// The proxy.
    pub proxy: Proxy,
}

/// Whether to use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Look up the newest commit.
    Online,
    /// Open no connection; use only the cache.
    Offline,
}

/// The proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// From `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    FromEnvironment,
    /// No proxy.
    None,
}

/// An access token, hidden from debug output.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token, if it is valid in a header.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("Token(…)")
    }
}

impl Settings {
    /// Settings from the environment.
    pub fn from_environment() -> Result<Self, HubError> {
        Self::from_variables(|name| std::env::var_os(name), std::env::home_dir())
    }

    /// Settings from variables; `home` is the home folder.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<OsString>,
        home: Option<PathBuf>,
    ) -> Result<Self, HubError> {
        // An empty variable counts as unset.
        let path = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some(expand_home(Path::new(&value), home.as_deref()))
        };
        let text = |name: &'static str| match variable(name).map(OsString::into_string) {
            Some(Err(_)) => Err(invalid(name, "not UTF-8", "set it as UTF-8")),
            Some(Ok(value)) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
            None => Ok(None),
        };
        let hf_home = path("HF_HOME")
            .or_else(|| Some(path("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(home.as_ref()?.join(".cache/huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| Some(hf_home.as_ref()?.join("hub")));
        let token = match text("HF_TOKEN")? {
            Some(token) => {
                let broken = || {
                    invalid(
                        "HF_TOKEN",
                        "not a token",
                        "copy it again from your settings",
                    )
                };
                Some(Token::new(&token).ok_or_else(broken)?)
            }
            None => path("HF_TOKEN_PATH")
                .or_else(|| Some(hf_home?.join("token")))
                .and_then(|file| std::fs::read_to_string(file).ok())
                .and_then(|token| Token::new(&token)),
        };
        Ok(Self {
            cache: cache
                .ok_or_else(|| invalid("HF_HOME", "not set", "set it to a folder for models"))?,
            endpoint: text("HF_ENDPOINT")?.map(endpoint).transpose()?,
            token,
            network: network(text("HF_HUB_OFFLINE")?)?,
            proxy: Proxy::FromEnvironment,
        })
    }
}

fn endpoint(address: String) -> Result<String, HubError> {
    if !address.starts_with("https://") && !address.starts_with("http://") {
        let value = format!("\"{}\"", address.escape_debug());
        return Err(invalid("HF_ENDPOINT", &value, "start it with https://"));
    }
    Ok(address.trim_end_matches('/').to_owned())
}

fn network(offline: Option<String>) -> Result<Network, HubError> {
    let Some(word) = offline else {
        return Ok(Network::Online);
    };
    match word.to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(Network::Offline),
        "0" | "false" | "no" | "off" => Ok(Network::Online),
        _ => {
            let value = format!("\"{}\"", word.escape_debug());
            Err(invalid("HF_HUB_OFFLINE", &value, "set it to 1 or 0"))
        }
    }
}

fn invalid(name: &'static str, value: &str, advice: &'static str) -> HubError {
    HubError::Setting {
        name,
        value: value.to_owned(),
        advice,
    }
}

/// Expands a leading `~`.
fn expand_home(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, HubError> {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.into())
        };
        Settings::from_variables(find, Some("/home/me".into()))
    }

    #[test]
    fn the_cache_folder_is_that_of_hugging_face() {
        for (variables, expected) in [
            (&[][..], "/home/me/.cache/huggingface/hub"),
            (&[("HF_HOME", "")], "/home/me/.cache/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")], "/h/hub"),
            (&[("HF_HOME", "~/models")], "/home/me/models/hub"),
            (&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], "/c"),
        ] {
            assert_eq!(read(variables).unwrap().cache, Path::new(expected));
        }
    }

    #[test]
    fn offline_has_many_spellings() {
        for (word, expected) in [
            ("1", Network::Offline),
            ("True", Network::Offline),
            ("yes", Network::Offline),
            ("ON", Network::Offline),
            ("0", Network::Online),
            ("off", Network::Online),
            ("", Network::Online),
        ] {
            let settings = read(&[("HF_HUB_OFFLINE", word)]).unwrap();
            assert_eq!(settings.network, expected, "{word}");
        }
        let problem = read(&[("HF_HUB_OFFLINE", "perhaps")]).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "HF_HUB_OFFLINE is \"perhaps\"; set it to 1 or 0"
        );
    }

    #[test]
    fn the_token_comes_from_the_variable_or_a_file_and_is_not_printed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().display().to_string();
        let token = |variables: &[(&str, &str)]| {
            let settings = read(variables).unwrap();
            assert!(!format!("{settings:?}").contains("hf_"));
            settings.token.map(|token| token.reveal().to_owned())
        };
        assert_eq!(token(&[("HF_HOME", &home)]), None);
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        assert_eq!(token(&[("HF_HOME", &home)]).unwrap(), "hf_file");
        let both = [("HF_HOME", &*home), ("HF_TOKEN", " hf_variable ")];
        assert_eq!(token(&both).unwrap(), "hf_variable");
        assert!(read(&[("HF_TOKEN", "two words")]).is_err());
    }

    #[test]
    fn an_endpoint_needs_a_scheme() {
        let settings = read(&[("HF_ENDPOINT", "http://localhost:1/")]).unwrap();
        assert_eq!(settings.endpoint.unwrap(), "http://localhost:1");
        assert_eq!(read(&[("HF_ENDPOINT", "")]).unwrap().endpoint, None);
        assert!(read(&[("HF_ENDPOINT", "localhost")]).is_err());
    }
}
