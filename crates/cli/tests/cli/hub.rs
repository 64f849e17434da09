//! Hub models given in place of folders, against a test hub on this machine.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::{attentive, connect, transcript};
use server::{Model, REPO, Server};

#[path = "../../../hub/tests/resolving/server.rs"]
#[allow(dead_code, reason = "the tests of the crate `hub` use more of it")]
pub mod server;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

/// A test hub that serves a fixture.
fn hub(name: &str) -> Server {
    let read = |file: &str| std::fs::read(fixture(name).join(file)).ok();
    let names = ["config.json", "generation_config.json", "model.safetensors"];
    let files: Vec<(&str, Vec<u8>)> = names
        .iter()
        .filter_map(|name| Some((*name, read(name)?)))
        .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, it)| (*name, &it[..])).collect();
    Server::start(Model::new(&files))
}

/// Runs the program online, with this test hub as its endpoint.
fn online(folder: &Path, server: &Server, arguments: &[&str]) -> Output {
    let mut command = attentive(folder, arguments);
    connect(&mut command, &server.address);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_hub_model_generates_the_same_as_its_folder() {
    let server = hub("gpt2");
    let folder = tempfile::tempdir().unwrap();
    let options = "--ids 1,2,3 --temperature 0 --max-new-tokens 8 --json";
    let generate = |model| -> Vec<&str> {
        let options = options.split(' ');
        ["generate", model].into_iter().chain(options).collect()
    };
    let run = |model| online(folder.path(), &server, &generate(model));
    let original = fixture("gpt2").display().to_string();
    let expected = json(&run(&original));
    assert!(server.requests().is_empty(), "a folder needs no hub");
    let first = run(REPO);
    assert_eq!(json(&first)["ids"], expected["ids"]);
    let stderr = String::from_utf8(first.stderr).unwrap();
    assert!(
        stderr.starts_with("downloading model.safetensors, "),
        "{stderr}"
    );
    assert!(server.requests().len() > 3);
    let second = run(REPO);
    assert_eq!(json(&second)["ids"], expected["ids"]);
    assert_eq!(String::from_utf8(second.stderr).unwrap(), "");
    assert_eq!(server.requests().len(), 1, "only the commit hash");
    // `attentive` runs the program offline.
    let offline = attentive(folder.path(), &generate(REPO)).output().unwrap();
    assert_eq!(json(&offline)["ids"], expected["ids"]);
    assert!(server.requests().is_empty());
    // The hub is down: the cached files are used.
    server.change(|model| model.refusal = Some((503, "")));
    let third = run(REPO);
    assert_eq!(json(&third)["ids"], expected["ids"]);
    assert_eq!(
        String::from_utf8(third.stderr).unwrap(),
        "the hub cannot be reached (it responds with status 503); check the network, or HF_ENDPOINT, and try again\n\
         using owner/tiny as it was last downloaded\n"
    );
}

#[test]
fn info_downloads_no_weights() {
    let server = hub("llama");
    let folder = tempfile::tempdir().unwrap();
    let output = online(folder.path(), &server, &["info", REPO, "--json"]);
    assert_eq!(json(&output)["model_type"], "llama");
    let requests = server.requests().join("\n");
    assert!(!requests.contains("safetensors"), "{requests}");
}

#[test]
fn a_folder_takes_precedence_over_a_hub_model_of_the_same_name() {
    let server = hub("gpt2");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(REPO)).unwrap();
    let output = online(folder.path(), &server, &["info", REPO]);
    assert_eq!(output.status.code(), Some(1));
    assert!(server.requests().is_empty());
}

#[test]
fn errors_of_models_that_do_not_exist() {
    let server = hub("gpt2");
    let folder = tempfile::tempdir().unwrap();
    // One folder deeper, so that `../x` is inside the temporary folder too.
    let path = &folder.path().join("here");
    std::fs::create_dir(path).unwrap();
    let mut transcripts: Vec<String> =
        ["nowhere", "a/b/c", "../x", "owner/tiny", "runs/story@main"]
            .iter()
            .map(|model| transcript(path, &["info", model]))
            .collect();
    let mut run = |model: &str| {
        let output = online(path, &server, &["info", model]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let code = output.status.code().unwrap();
        transcripts.push(format!("$ attentive info {model}\n{stderr}[exit {code}]"));
    };
    run("runs/story");
    run("owner/tiny@v9");
    server.change(|model| model.refusal = Some((401, "GatedRepo")));
    run("owner/tiny");
    let mut command = attentive(path, &["tokenize", "owner/tiny", "text"]);
    let output = command.env("HF_HUB_OFFLINE", "perhaps").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(transcripts.join("\n\n"));
}

#[test]
fn files_of_the_cache_are_not_overwritten() {
    let server = hub("gpt2");
    let folder = tempfile::tempdir().unwrap();
    online(folder.path(), &server, &["info", REPO]);
    let commit = "a".repeat(40);
    let file = format!("huggingface/hub/models--owner--tiny/snapshots/{commit}/config.json");
    let arguments = ["forward", REPO, "--inputs", "in.safetensors", "--save"];
    let output = online(
        folder.path(),
        &server,
        &[&arguments[..], &[&*file]].concat(),
    );
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("is a file of the model"), "{stderr}");
}
