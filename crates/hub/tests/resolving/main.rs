//! Resolves models against a local test hub: requests, cache contents, errors.

mod caching;
mod failures;
mod server;

use std::path::{Path, PathBuf};

use attentive_hub::{Event, FileSet, HubError, ModelId, Network, Proxy, Settings, Token, resolve};
use server::{Model, REPO, Server};

/// A test hub, and an empty cache.
struct TestHub {
    server: Server,
    folder: tempfile::TempDir,
    settings: Settings,
}

/// The result, requests and events of a run.
struct Run {
    result: Result<PathBuf, HubError>,
    requests: Vec<String>,
    events: Vec<String>,
}

impl TestHub {
    fn new(model: Model) -> Self {
        let server = Server::start(model);
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            cache: folder.path().join("hub"),
            endpoint: Some(server.address.clone()),
            token: None,
            network: Network::Online,
            proxy: Proxy::None,
        };
        Self {
            server,
            folder,
            settings,
        }
    }

    /// Resolves the whole model.
    fn run(&self, id: &str) -> Run {
        self.run_for(id, FileSet::Model)
    }

    fn run_for(&self, id: &str, wanted: FileSet) -> Run {
        let id: ModelId = id.parse().unwrap();
        let mut events = Vec::new();
        let result = resolve(&id, wanted, &self.settings, &mut |event| match event {
            Event::Received { .. } => {}
            event => events.push(format!("{event:?}")),
        });
        Run {
            result,
            requests: self.server.requests(),
            events,
        }
    }

    fn offline(&mut self) {
        self.settings.network = Network::Offline;
    }

    /// Points the endpoint to a closed port.
    fn disconnect(&mut self) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        self.settings.endpoint = Some(format!("http://{address}"));
    }

    fn with_token(mut self, token: &str) -> Self {
        self.settings.token = Token::new(token);
        self
    }

    fn blobs(&self) -> Vec<String> {
        let repo = format!("models--{}", REPO.replace('/', "--"));
        names(&self.settings.cache.join(repo).join("blobs"))
    }
}

impl Run {
    fn folder(self) -> PathBuf {
        self.result.unwrap()
    }

    /// The error message.
    fn problem(self) -> String {
        self.result.unwrap_err().to_string()
    }

    /// The requests for file contents.
    fn downloads(&self) -> Vec<&str> {
        let requests = self.requests.iter().map(String::as_str);
        requests
            .filter(|it| it.starts_with("GET /") && !it.starts_with("GET /api/"))
            .collect()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Pseudo-random weights.
fn weights(size: usize) -> Vec<u8> {
    let numbers = (0..size as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    numbers.collect()
}

/// A typical model.
fn tiny() -> Model {
    Model::new(&[
        ("config.json", b"{}"),
        ("generation_config.json", b"{ }"),
        ("tokenizer.json", b"{\"version\": \"1.0\"}"),
        (
            "modules.json",
            br#"[{"path": ""}, {"path": "7_Pooling"}, {"path": "8_Normalize"}]"#,
        ),
        ("7_Pooling/config.json", b"{\"pooling\": true}"),
        ("9_Other/config.json", b"{\"named\": \"by nobody\"}"),
        ("README.md", b"# Tiny"),
        ("pytorch_model.bin", b"older"),
        ("model.safetensors", &weights(300_000)),
    ])
}

/// A model of two shards.
fn sharded() -> Model {
    let index =
        br#"{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors",
                     "c": "model-1-of-2.safetensors"}}"#;
    Model::new(&[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-1-of-2.safetensors", b"one"),
        ("model-2-of-2.safetensors", b"two"),
        ("model-3-of-3.safetensors", b"of another"),
    ])
}
