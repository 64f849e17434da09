//! A test hub of one model on 127.0.0.1, which responds like Hugging Face's and fails on demand. The tests of the CLI use it
//! too.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The id of the model, unless a test changes it.
pub const REPO: &str = "owner/tiny";

/// Its former name, which redirects.
pub const FORMER_REPO: &str = "owner/former";

/// The contents and behavior of the hub; changed between runs.
#[derive(Clone)]
pub struct Model {
    /// Its id, `owner/name`.
    pub repo: String,
    pub commit: String,
    pub files: BTreeMap<String, Vec<u8>>,
    /// Further names in the listing.
    pub listed: Vec<String>,
    /// A revision besides `main`.
    pub tag: String,
    /// Respond to everything with this status and `x-error-code`.
    pub refusal: Option<(u16, &'static str)>,
    /// The required token; without it everything is a 401.
    pub token: Option<&'static str>,
    /// Redirect weights to this host, as the hub does; otherwise serve them directly.
    pub storage: Option<String>,
    /// Close the connection after this many bytes of weights, this many times.
    pub interruptions: (usize, usize),
    /// Whether range requests are supported.
    pub ranges: bool,
    /// Added to the stated size of weights.
    pub size_error: i64,
    /// Prepended to the etags of weights.
    pub etag: String,
}

impl Model {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter();
        Self {
            repo: REPO.to_owned(),
            commit: "a".repeat(40),
            files: files
                .map(|(name, it)| (name.to_string(), it.to_vec()))
                .collect(),
            listed: Vec::new(),
            tag: "v1".to_owned(),
            refusal: None,
            token: None,
            storage: None,
            interruptions: (0, 0),
            ranges: true,
            size_error: 0,
            etag: String::new(),
        }
    }
}

/// The running hub.
pub struct Server {
    pub address: String,
    model: Arc<Mutex<Model>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn start(model: Model) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            model: Arc::new(Mutex::new(model)),
            requests: Arc::default(),
        };
        let (model, requests) = (server.model.clone(), server.requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (model, requests) = (model.clone(), requests.clone());
                // Ignore clients that disconnect.
                std::thread::spawn(move || stream.map(|it| answer(it, &model, &requests)));
            }
        });
        server
    }

    /// Changes the model.
    pub fn change(&self, change: impl FnOnce(&mut Model)) {
        change(&mut self.model.lock().unwrap());
    }

    /// The requests since the last call: method, path, and relevant headers.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
}

fn read(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next(), words.next());
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    Ok(Request {
        method: method.unwrap_or_default(),
        path: path.unwrap_or_default(),
        headers,
    })
}

fn answer(
    mut stream: TcpStream,
    model: &Mutex<Model>,
    requests: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = read(&stream)?;
    let mut line = format!("{} {}", request.method, request.path);
    if let Some(range) = request.headers.get("range") {
        line += &format!(" {range}");
    }
    let authorization = request.headers.get("authorization");
    if authorization.is_some() {
        line += " with token";
    }
    requests.lock().unwrap().push(line);
    let mut reply = {
        let model = model.lock().unwrap();
        let unauthorized = model
            .token
            .is_some_and(|token| authorization != Some(&format!("Bearer {token}")));
        if let Some((status, code)) = model.refusal {
            Reply::error(status, code)
        } else if unauthorized && !request.path.starts_with("/storage/") {
            Reply::error(401, "GatedRepo")
        } else {
            route(&model, &request)
        }
    };
    if reply.interruptible && request.method == "GET" {
        let mut model = model.lock().unwrap();
        let (bytes, times) = model.interruptions;
        if times > 0 {
            model.interruptions.1 -= 1;
            reply.body.truncate(bytes);
        }
    }
    stream.write_all(reply.head.as_bytes())?;
    if request.method != "HEAD" {
        stream.write_all(&reply.body)?;
    }
    stream.flush()
}

struct Reply {
    head: String,
    body: Vec<u8>,
    /// Whether the body may be interrupted.
    interruptible: bool,
}

impl Reply {
    fn new(status: u16, headers: &[(&str, String)], body: Vec<u8>) -> Self {
        let mut head = format!("HTTP/1.1 {status} Reason\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        Self {
            head,
            body,
            interruptible: false,
        }
    }

    fn error(status: u16, code: &str) -> Self {
        Self::new(status, &[("x-error-code", code.to_owned())], Vec::new())
    }
}

fn route(model: &Model, request: &Request) -> Reply {
    let path = &*request.path;
    if path.contains(FORMER_REPO) {
        let location = path.replace(FORMER_REPO, &model.repo);
        return Reply::new(307, &[("location", location)], Vec::new());
    }
    let known = |revision: &str| {
        let revision = revision.replace("%2F", "/");
        revision == "main" || revision == model.tag || revision == model.commit
    };
    let repo = &model.repo;
    if let Some(revision) = path.strip_prefix(&format!("/api/models/{repo}/revision/")) {
        return match known(revision) {
            true => Reply::new(200, &[], listing(model)),
            false => Reply::error(404, "RevisionNotFound"),
        };
    }
    if let Some(name) = path.strip_prefix("/storage/") {
        return file(model, name, request);
    }
    let Some((revision, name)) = path
        .strip_prefix(&format!("/{repo}/resolve/"))
        .and_then(|rest| rest.split_once('/'))
    else {
        return Reply::error(404, "RepoNotFound");
    };
    if !known(revision) {
        return Reply::error(404, "RevisionNotFound");
    }
    let Some(bytes) = model.files.get(name) else {
        return Reply::error(404, "EntryNotFound");
    };
    match &model.storage {
        Some(host) if is_weights(name) => {
            let port = request.headers["host"]
                .rsplit(':')
                .next()
                .unwrap()
                .to_owned();
            let headers = [
                ("location", format!("http://{host}:{port}/storage/{name}")),
                ("x-repo-commit", model.commit.clone()),
                ("x-linked-etag", etag(model, name)),
                ("x-linked-size", stated_size(model, bytes).to_string()),
            ];
            Reply::new(302, &headers, b"Found.".to_vec())
        }
        _ => file(model, name, request),
    }
}

fn listing(model: &Model) -> Vec<u8> {
    let names = model.files.keys().chain(&model.listed);
    let names: Vec<String> = names
        .map(|name| format!("{{\"rfilename\": \"{name}\"}}"))
        .collect();
    let (repo, commit, names) = (&model.repo, &model.commit, names.join(", "));
    format!("{{\"id\": \"{repo}\", \"sha\": \"{commit}\", \"siblings\": [{names}]}}").into_bytes()
}

/// The contents of a file, or the requested range.
fn file(model: &Model, name: &str, request: &Request) -> Reply {
    let bytes = &model.files[name];
    let mut headers = vec![
        ("x-repo-commit", model.commit.clone()),
        ("etag", etag(model, name)),
    ];
    let start = request.headers.get("range").filter(|_| model.ranges);
    let start = start.map(|range| {
        let start = range.trim_start_matches("bytes=").trim_end_matches('-');
        start.parse::<usize>().unwrap()
    });
    let mut reply = match start {
        Some(start) if start >= bytes.len() => Reply::error(416, ""),
        Some(start) => {
            let (last, size) = (bytes.len() - 1, bytes.len());
            headers.push(("content-range", format!("bytes {start}-{last}/{size}")));
            Reply::new(206, &headers, bytes[start..].to_vec())
        }
        None => Reply::new(200, &headers, bytes.clone()),
    };
    if is_weights(name) {
        reply.interruptible = true;
        if request.method == "HEAD" {
            let true_header = format!("content-length: {}\r\n", bytes.len());
            let stated_header = format!("content-length: {}\r\n", stated_size(model, bytes));
            reply.head = reply.head.replace(&true_header, &stated_header);
        }
    }
    reply
}

fn stated_size(model: &Model, bytes: &[u8]) -> i64 {
    bytes.len() as i64 + model.size_error
}

/// Identical files have identical etags, as on the hub.
fn etag(model: &Model, name: &str) -> String {
    let bytes = &model.files[name];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let prefix = if is_weights(name) { &*model.etag } else { "" };
    format!("\"{prefix}{hash:016x}\"")
}

fn is_weights(name: &str) -> bool {
    name.ends_with(".safetensors") || name.ends_with(".bin")
}
