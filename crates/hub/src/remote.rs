//! Requests to the hub: the files of a revision, file metadata, and file contents.

use std::collections::BTreeSet;
use std::time::Duration;

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo};
use ureq::config::RedirectAuthHeaders;
use ureq::http::Uri;
use ureq::http::header::{CONTENT_LENGTH, ETAG, LOCATION};
use ureq::{Agent, Body};

use crate::cache::repo;
use crate::error::excerpt;
use crate::id::is_file_name;
use crate::{HubError, ModelId, Proxy, Settings, Token};

/// The timeout of connecting, of a response, and of each read.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The most redirects of a request.
const MAX_REDIRECTS: usize = 8;

pub(crate) type Response = ureq::http::Response<Body>;

/// A client for one model of the hub.
pub(crate) struct Remote<'a> {
    id: &'a ModelId,
    token: Option<&'a Token>,
    api: Api,
    agent: Agent,
    proxy: Option<ureq::Proxy>,
}

/// The commit and files of a revision.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) names: BTreeSet<String>,
}

/// The URL, etag and size of a file.
pub(crate) struct FileMetadata {
    pub(crate) url: String,
    pub(crate) etag: String,
    pub(crate) size: u64,
}

impl<'a> Remote<'a> {
    pub(crate) fn new(id: &'a ModelId, settings: &'a Settings) -> Result<Self, HubError> {
        let token = settings.token.as_ref();
        let cache = Cache::new(settings.cache.clone());
        let mut builder = ApiBuilder::from_cache(cache)
            .with_token(token.map(|token| token.reveal().to_owned()))
            .with_user_agent("attentive", env!("CARGO_PKG_VERSION"));
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        let api = builder.build().map_err(|error| HubError::Network {
            problem: error.to_string(),
        })?;
        let proxy = match settings.proxy {
            Proxy::FromEnvironment => ureq::Proxy::try_from_env(),
            Proxy::None => None,
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("attentive/", env!("CARGO_PKG_VERSION")))
            // Content-Length must be the file size, so no compression.
            .accept_encoding("identity")
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .proxy(proxy.clone())
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_per_read(Some(TIMEOUT))
            .build();
        Ok(Self {
            id,
            token,
            api,
            agent: agent.into(),
            proxy,
        })
    }

    /// The commit of the revision, and its files.
    pub(crate) fn listing(&self) -> Result<Listing, HubError> {
        let mut response = self
            .api
            .repo(self.repo(self.id.revision()))
            .info_request()
            .config()
            .http_status_as_error(false)
            .proxy(self.proxy.clone())
            .timeout_global(Some(TIMEOUT))
            .build()
            .call()
            .map_err(|error| network_error(&error))?;
        if !response.status().is_success() {
            return Err(self.status_error(&response));
        }
        let invalid_response = |problem: String| HubError::Answer {
            about: self.id.to_string(),
            problem,
        };
        let text = response.body_mut().read_to_vec();
        let text = text.map_err(|error| network_error(&error))?;
        let info: RepoInfo =
            serde_json::from_slice(&text).map_err(|error| invalid_response(error.to_string()))?;
        // It becomes a folder name.
        if !is_file_name(&info.sha) {
            let sha = excerpt(&info.sha);
            return Err(invalid_response(format!("`{sha}` is not a commit")));
        }
        Ok(Listing {
            commit: info.sha,
            names: info.siblings.into_iter().map(|it| it.rfilename).collect(),
        })
    }

    /// The metadata of a file at a commit. For large files the hub redirects to storage, and sends etag and size in the
    /// headers of the redirect.
    pub(crate) fn file_metadata(&self, commit: &str, name: &str) -> Result<FileMetadata, HubError> {
        let url = self.api.repo(self.repo(commit)).url(&percent_encode(name));
        let (mut etag, mut size) = (None, None);
        let mut address = url.clone();
        for _ in 0..MAX_REDIRECTS {
            let response = self.head(&address, &url)?;
            let status = response.status();
            let text = |name: &str| response.headers().get(name)?.to_str().ok();
            let number = |name: &str| text(name)?.parse::<u64>().ok();
            etag = etag.or_else(|| text("x-linked-etag").map(str::to_owned));
            size = size.or_else(|| number("x-linked-size"));
            if status.is_success() {
                etag = etag.or_else(|| text(ETAG.as_str()).map(str::to_owned));
                size = size.or_else(|| number(CONTENT_LENGTH.as_str()));
            } else if !status.is_redirection() {
                return Err(self.status_error(&response));
            }
            let done = etag.is_some() && size.is_some();
            match text(LOCATION.as_str()) {
                Some(location) if status.is_redirection() && !done => {
                    address = resolve_redirect(&address, location).ok_or_else(|| {
                        invalid_response(name, "it redirects to an invalid address".to_owned())
                    })?;
                }
                _ => break,
            }
        }
        let etag = etag.as_deref().map(strip_etag).unwrap_or_default();
        // It becomes a file name.
        if !is_file_name(etag) {
            let problem = format!("`{}` is not an etag", excerpt(etag));
            return Err(invalid_response(name, problem));
        }
        let size = size.ok_or_else(|| invalid_response(name, "it has no size".to_owned()))?;
        Ok(FileMetadata {
            url,
            etag: etag.to_owned(),
            size,
        })
    }

    /// Requests the contents of a file from an offset; returns the response whatever its status.
    pub(crate) fn open(&self, url: &str, from: u64) -> Result<Response, HubError> {
        let mut request = self.agent.get(url);
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = self.token {
            request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        }
        request.call().map_err(|error| network_error(&error))
    }

    /// The error of an unsuccessful status.
    pub(crate) fn status_error(&self, response: &Response) -> HubError {
        let code = response.headers().get("x-error-code");
        let code = code.and_then(|code| code.to_str().ok()).unwrap_or_default();
        match (response.status().as_u16(), code) {
            (404, _) | (_, "RevisionNotFound") => HubError::NotFound {
                repo: self.id.repo().to_owned(),
                revision: self.id.revision().to_owned(),
            },
            (status @ (401 | 403), code) => HubError::Refused {
                id: self.id.to_string(),
                whom: match self.token {
                    Some(_) => "the owner of this token",
                    None => "anonymous users",
                },
                status,
                advice: match (self.token.is_some(), code) {
                    (true, "GatedRepo") => "accept its conditions on its page, then run this again",
                    (true, _) => {
                        "check the spelling and HF_TOKEN, and accept the conditions on its page if it has any"
                    }
                    // The hub responds the same way for unknown repositories.
                    (false, _) => {
                        "check the spelling; if it is private, or has conditions to accept on its page, set HF_TOKEN"
                    }
                },
            },
            (status, _) => HubError::Network {
                problem: format!("it responds with status {status}"),
            },
        }
    }

    fn repo(&self, revision: &str) -> Repo {
        repo(self.id, revision)
    }

    /// Does not follow redirects, whose headers are needed. The token is only sent to the host of the hub.
    fn head(&self, address: &str, hub: &str) -> Result<Response, HubError> {
        let mut request = self.agent.head(address);
        if let Some(token) = self.token.filter(|_| origin(address) == origin(hub)) {
            request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        }
        request
            .config()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build()
            .call()
            .map_err(|error| network_error(&error))
    }
}

fn invalid_response(name: &str, problem: String) -> HubError {
    HubError::Answer {
        about: name.to_owned(),
        problem,
    }
}

fn network_error(error: &ureq::Error) -> HubError {
    HubError::Network {
        problem: error.to_string(),
    }
}

/// An etag without quotes and weak prefix.
fn strip_etag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Scheme, host and port.
fn origin(address: &str) -> Option<(String, String)> {
    let address: Uri = address.parse().ok()?;
    let scheme = address.scheme_str()?.to_owned();
    Some((scheme, address.authority()?.as_str().to_owned()))
}

/// Resolves the location of a redirect, which may be an absolute path.
fn resolve_redirect(from: &str, location: &str) -> Option<String> {
    match location.starts_with('/') && !location.starts_with("//") {
        true => origin(from).map(|(scheme, host)| format!("{scheme}://{host}{location}")),
        false => origin(location).map(|_| location.to_owned()),
    }
}

/// Percent-encodes a file name, except slashes.
fn percent_encode(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let letters = name.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_to_paths_and_hosts_are_resolved() {
        for (location, expected) in [
            ("/b/c?d", Some("http://host:1/b/c?d")),
            ("https://other/x", Some("https://other/x")),
            ("//other/x", None),
            ("x", None),
        ] {
            let address = resolve_redirect("http://host:1/a", location);
            assert_eq!(address.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn etags_are_stripped_of_quotes() {
        for etag in ["abc", "\"abc\"", "W/\"abc\""] {
            assert_eq!(strip_etag(etag), "abc");
        }
    }
}
