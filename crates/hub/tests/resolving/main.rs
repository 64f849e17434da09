//! From an id to a folder, against a hub on this machine: what is asked for, what is kept, what is said when it fails.

mod failing;
mod keeping;
mod server;

use std::path::{Path, PathBuf};

use attentive_hub::{Event, HubError, ModelId, Network, Proxy, Settings, Token, Wanted, resolve};
use server::{Model, REPO, Server};

/// A hub, and a cache that knows nothing yet.
struct Place {
    server: Server,
    folder: tempfile::TempDir,
    settings: Settings,
}

/// What a run gave, asked for and told.
struct Run {
    result: Result<PathBuf, HubError>,
    requests: Vec<String>,
    notes: Vec<String>,
}

impl Place {
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

    /// The whole model, at a revision.
    fn run(&self, id: &str) -> Run {
        self.run_for(id, Wanted::Model)
    }

    fn run_for(&self, id: &str, wanted: Wanted) -> Run {
        let id: ModelId = id.parse().unwrap();
        let mut notes = Vec::new();
        let result = resolve(&id, wanted, &self.settings, &mut |event| match event {
            Event::Received { .. } => {}
            event => notes.push(format!("{event:?}")),
        });
        Run {
            result,
            requests: self.server.requests(),
            notes,
        }
    }

    fn offline(&mut self) {
        self.settings.network = Network::Offline;
    }

    /// From now on nobody listens where the hub was.
    fn unplug(&mut self) {
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

    /// What went wrong, as a person reads it.
    fn problem(self) -> String {
        self.result.unwrap_err().to_string()
    }

    /// The requests for bytes of files.
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

/// Weights of some size, no two parts alike.
fn weights(size: usize) -> Vec<u8> {
    let numbers = (0..size as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    numbers.collect()
}

/// A model as most are.
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

/// A model in two files.
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
