//! Questions to the hub: what a revision holds, what a file is, and its bytes.

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
use crate::id::is_file_name;
use crate::{HubError, ModelId, Proxy, Settings, Token};

/// How long a connection, an answer, or the next bytes may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a question may be sent elsewhere.
const REDIRECTS: usize = 8;

pub(crate) type Response = ureq::http::Response<Body>;

/// The hub, asked about one model.
pub(crate) struct Remote<'a> {
    id: &'a ModelId,
    token: Option<&'a Token>,
    api: Api,
    agent: Agent,
    proxy: Option<ureq::Proxy>,
}

/// What a revision holds.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) names: BTreeSet<String>,
}

/// What the hub says of a file.
pub(crate) struct Announced {
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
            Proxy::OfEnvironment => ureq::Proxy::try_from_env(),
            Proxy::None => None,
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("attentive/", env!("CARGO_PKG_VERSION")))
            // Sizes are those of the files, so nothing may be packed on the way.
            .accept_encoding("identity")
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .proxy(proxy.clone())
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .build();
        Ok(Self {
            id,
            token,
            api,
            agent: agent.into(),
            proxy,
        })
    }

    /// The commit that the revision is at, and the names of its files.
    pub(crate) fn listing(&self) -> Result<Listing, HubError> {
        let mut response = self
            .api
            .repo(self.repo(self.id.revision()))
            .info_request()
            .config()
            .http_status_as_error(false)
            .proxy(self.proxy.clone())
            .timeout_global(Some(PATIENCE))
            .build()
            .call()
            .map_err(|error| unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(&response));
        }
        let nonsense = |problem: String| HubError::Answer {
            about: self.id.to_string(),
            problem,
        };
        let text = response.body_mut().read_to_vec();
        let text = text.map_err(|error| unreachable(&error))?;
        let info: RepoInfo =
            serde_json::from_slice(&text).map_err(|error| nonsense(error.to_string()))?;
        // It becomes the name of a folder.
        if !is_file_name(&info.sha) {
            let sha = info.sha.escape_debug();
            return Err(nonsense(format!("`{sha}` is no commit")));
        }
        Ok(Listing {
            commit: info.sha,
            names: info.siblings.into_iter().map(|it| it.rfilename).collect(),
        })
    }

    /// What the hub says of a file at a commit. The hub sends on for large files, and tells etag and size of the file
    /// itself before it does.
    pub(crate) fn announced(&self, commit: &str, name: &str) -> Result<Announced, HubError> {
        let url = self.api.repo(self.repo(commit)).url(&in_address(name));
        let (mut etag, mut size) = (None, None);
        let mut place = url.clone();
        for _ in 0..REDIRECTS {
            let response = self.head(&place, &url)?;
            let status = response.status();
            let text = |name: &str| response.headers().get(name)?.to_str().ok();
            let number = |name: &str| text(name)?.parse::<u64>().ok();
            etag = etag.or_else(|| text("x-linked-etag").map(str::to_owned));
            size = size.or_else(|| number("x-linked-size"));
            if status.is_success() {
                etag = etag.or_else(|| text(ETAG.as_str()).map(str::to_owned));
                size = size.or_else(|| number(CONTENT_LENGTH.as_str()));
            } else if !status.is_redirection() {
                return Err(self.refusal(&response));
            }
            let done = etag.is_some() && size.is_some();
            match text(LOCATION.as_str()) {
                Some(location) if status.is_redirection() && !done => {
                    place = joined(&place, location)
                        .ok_or_else(|| nonsense(name, "it sends to no address".to_owned()))?;
                }
                _ => break,
            }
        }
        let etag = etag.as_deref().map(bare).unwrap_or_default();
        // It becomes the name of a file.
        if !is_file_name(etag) {
            let problem = format!("`{}` is no etag", etag.escape_debug());
            return Err(nonsense(name, problem));
        }
        let size = size.ok_or_else(|| nonsense(name, "it has no size".to_owned()))?;
        Ok(Announced {
            url,
            etag: etag.to_owned(),
            size,
        })
    }

    /// The answer to a request for the bytes of a file from an offset on, whatever its status.
    pub(crate) fn open(&self, url: &str, from: u64) -> Result<Response, HubError> {
        let mut request = self.agent.get(url);
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = self.token {
            request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        }
        request.call().map_err(|error| unreachable(&error))
    }

    /// What a status that is no success means.
    pub(crate) fn refusal(&self, response: &Response) -> HubError {
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
                    None => "strangers",
                },
                status,
                advice: match (self.token.is_some(), code) {
                    (true, "GatedRepo") => "accept its conditions on its page, then run this again",
                    (true, _) => {
                        "check the spelling and HF_TOKEN, and accept the conditions on its page if it has any"
                    }
                    // The hub answers so for names that it does not know, too.
                    (false, _) => {
                        "check the spelling; if it is private, or has conditions to accept on its page, set HF_TOKEN"
                    }
                },
            },
            (status, _) => HubError::Network {
                problem: format!("it answers with status {status}"),
            },
        }
    }

    fn repo(&self, revision: &str) -> Repo {
        repo(self.id, revision)
    }

    /// Redirects are not followed, because what they say on the way is needed. The token stays at the hub's own host.
    fn head(&self, place: &str, hub: &str) -> Result<Response, HubError> {
        let mut request = self.agent.head(place);
        if let Some(token) = self.token.filter(|_| origin(place) == origin(hub)) {
            request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        }
        request
            .config()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build()
            .call()
            .map_err(|error| unreachable(&error))
    }
}

fn nonsense(name: &str, problem: String) -> HubError {
    HubError::Answer {
        about: name.to_owned(),
        problem,
    }
}

fn unreachable(error: &ureq::Error) -> HubError {
    HubError::Network {
        problem: error.to_string(),
    }
}

/// An etag without its quotes and without the mark of weak ones.
fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Scheme, host and port.
fn origin(address: &str) -> Option<(String, String)> {
    let address: Uri = address.parse().ok()?;
    let scheme = address.scheme_str()?.to_owned();
    Some((scheme, address.authority()?.as_str().to_owned()))
}

/// Where a redirect leads, which may be a path on the same host.
fn joined(from: &str, location: &str) -> Option<String> {
    match location.starts_with('/') && !location.starts_with("//") {
        true => origin(from).map(|(scheme, host)| format!("{scheme}://{host}{location}")),
        false => origin(location).map(|_| location.to_owned()),
    }
}

/// A file's name as an address may hold it; its folders stay folders.
fn in_address(name: &str) -> String {
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
    fn redirects_lead_to_paths_or_hosts() {
        for (location, expected) in [
            ("/b/c?d", Some("http://host:1/b/c?d")),
            ("https://other/x", Some("https://other/x")),
            ("//other/x", None),
            ("x", None),
        ] {
            let place = joined("http://host:1/a", location);
            assert_eq!(place.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn etags_lose_their_quotes() {
        for etag in ["abc", "\"abc\"", "W/\"abc\""] {
            assert_eq!(bare(etag), "abc");
        }
    }
}
