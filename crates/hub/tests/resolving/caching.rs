//! Successful runs: what is downloaded, cached, and not downloaded again.

use super::*;

#[test]
fn the_first_run_fetches_and_the_second_does_not() {
    let hub = TestHub::new(tiny());
    let first = hub.run(REPO);
    assert_eq!(first.downloads().len(), 6);
    assert_eq!(
        first.requests[0],
        "GET /api/models/owner/tiny/revision/main"
    );
    let folder = first.folder();
    let commit = "a".repeat(40);
    let repo = hub.settings.cache.join("models--owner--tiny");
    assert_eq!(folder, repo.join("snapshots").join(&commit));
    assert_eq!(
        names(&folder),
        [
            "7_Pooling",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "modules.json",
            "tokenizer.json"
        ]
    );
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
    assert!(folder.join("7_Pooling/config.json").is_file());
    assert_eq!(
        std::fs::read_to_string(repo.join("refs/main")).unwrap(),
        commit
    );
    let second = hub.run(REPO);
    assert_eq!(
        second.requests,
        ["GET /api/models/owner/tiny/revision/main"]
    );
    assert_eq!(second.folder(), folder);
}

#[test]
fn module_folders_may_be_nested_and_have_any_name() {
    let mut model = tiny();
    let modules = r#"[{"path": "sub/1_Pooling/"}, {"path": "zwei Wörter"}]"#;
    let named = [
        ("modules.json", modules),
        ("sub/1_Pooling/config.json", "{\"one\": 1}"),
        ("zwei Wörter/config.json", "{\"two\": 2}"),
    ];
    for (name, text) in named {
        model.files.insert(name.to_owned(), text.into());
        model.listed.push(name.to_owned());
    }
    // The test hub knows files by their encoded names.
    model.files.insert(
        "zwei%20W%C3%B6rter/config.json".to_owned(),
        named[2].1.into(),
    );
    let hub = TestHub::new(model);
    let folder = hub.run(REPO).folder();
    for (name, _) in named {
        assert!(folder.join(name).is_file(), "{name}");
    }
}

#[test]
fn a_broken_modules_json_is_downloaded_unchanged() {
    for text in ["", "{", "{}", "[[3]]"] {
        let mut model = tiny();
        model.files.insert("modules.json".to_owned(), text.into());
        assert!(TestHub::new(model).run(REPO).result.is_ok(), "{text}");
    }
}

#[test]
fn offline_sends_no_request() {
    let mut hub = TestHub::new(tiny());
    let folder = hub.run(REPO).folder();
    hub.offline();
    let run = hub.run(REPO);
    assert!(run.requests.is_empty());
    assert_eq!(run.folder(), folder);
}

#[test]
fn the_cache_can_be_moved() {
    let mut hub = TestHub::new(tiny());
    hub.run(REPO).folder();
    let moved = hub.folder.path().join("moved");
    std::fs::rename(&hub.settings.cache, &moved).unwrap();
    hub.settings.cache = moved;
    hub.offline();
    let folder = hub.run(REPO).folder();
    assert_eq!(std::fs::read(folder.join("config.json")).unwrap(), b"{}");
}

#[test]
fn only_the_requested_file_set_is_downloaded() {
    let hub = TestHub::new(tiny());
    let folder = hub.run_for(REPO, FileSet::Config).folder();
    assert_eq!(names(&folder), ["config.json", "generation_config.json"]);
    let folder = hub.run_for(REPO, FileSet::Tokenizer).folder();
    assert_eq!(
        names(&folder),
        ["config.json", "generation_config.json", "tokenizer.json"]
    );
    let run = hub.run(REPO);
    assert_eq!(run.downloads().len(), 3, "the rest");
}

#[test]
fn revisions_are_branches_tags_and_commits() {
    let mut model = tiny();
    model.tag = "refs/pr/1".to_owned();
    let mut hub = TestHub::new(model);
    let run = hub.run("owner/tiny@refs/pr/1");
    assert_eq!(
        run.requests[0],
        "GET /api/models/owner/tiny/revision/refs%2Fpr%2F1"
    );
    let folder = run.folder();
    let reference = hub
        .settings
        .cache
        .join("models--owner--tiny/refs/refs/pr/1");
    assert_eq!(std::fs::read_to_string(reference).unwrap(), "a".repeat(40));
    // A cached commit needs no request.
    let run = hub.run(&format!("owner/tiny@{}", "a".repeat(40)));
    assert!(run.requests.is_empty());
    assert_eq!(run.folder(), folder);
    hub.offline();
    assert_eq!(hub.run("owner/tiny@refs/pr/1").folder(), folder);
}

#[test]
fn a_new_commit_downloads_only_changed_files() {
    let hub = TestHub::new(tiny());
    let old = hub.run(REPO).folder();
    hub.server.change(|model| {
        model.commit = "b".repeat(40);
        let config = model.files.get_mut("config.json").unwrap();
        *config = b"{\"new\": 1}".to_vec();
    });
    let run = hub.run(REPO);
    let commit = "b".repeat(40);
    assert_eq!(
        run.downloads(),
        [format!("GET /owner/tiny/resolve/{commit}/config.json")]
    );
    let new = run.folder();
    assert_ne!(new, old);
    assert_eq!(names(&new), names(&old));
    assert_eq!(std::fs::read(old.join("config.json")).unwrap(), b"{}");
}

#[test]
fn exactly_the_shards_of_the_index_are_downloaded() {
    let mut hub = TestHub::new(sharded());
    let folder = hub.run(REPO).folder();
    assert_eq!(
        names(&folder),
        [
            "config.json",
            "model-1-of-2.safetensors",
            "model-2-of-2.safetensors",
            "model.safetensors.index.json"
        ]
    );
    hub.offline();
    assert_eq!(hub.run(REPO).folder(), folder);
    std::fs::remove_file(folder.join("model-2-of-2.safetensors")).unwrap();
    assert!(
        hub.run(REPO)
            .problem()
            .contains("(model-2-of-2.safetensors is missing)")
    );
}

#[test]
fn pytorch_weights_are_used_without_safetensors() {
    let mut model = tiny();
    model.files.remove("model.safetensors");
    let hub = TestHub::new(model);
    let folder = hub.run(REPO).folder();
    assert_eq!(
        std::fs::read(folder.join("pytorch_model.bin")).unwrap(),
        b"older"
    );
}

#[test]
fn the_token_is_not_sent_to_redirect_targets() {
    let mut model = tiny();
    model.token = Some("hf_secret");
    model.storage = Some("localhost".to_owned());
    let hub = TestHub::new(model).with_token("hf_secret");
    let run = hub.run(REPO);
    for request in &run.requests {
        let elsewhere = request.contains("/storage/");
        assert_eq!(request.ends_with("with token"), !elsewhere, "{request}");
    }
    assert!(run.requests.iter().any(|it| it.contains("/storage/")));
    let folder = run.folder();
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
}

#[test]
fn concurrent_runs_download_a_file_once() {
    let hub = TestHub::new(tiny());
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| hub.run(REPO)));
        threads.map(|it| it.join().unwrap()).into()
    });
    let all: Vec<&str> = runs.iter().flat_map(|run| run.downloads()).collect();
    let of_weights = all.iter().filter(|it| it.ends_with("model.safetensors"));
    assert_eq!(of_weights.count(), 1);
    assert_eq!(hub.blobs().len(), 6);
}

#[test]
fn an_empty_file_is_downloaded() {
    let mut model = tiny();
    model.files.insert("merges.txt".to_owned(), Vec::new());
    let hub = TestHub::new(model);
    let folder = hub.run(REPO).folder();
    assert_eq!(std::fs::read(folder.join("merges.txt")).unwrap(), b"");
}

#[test]
fn a_file_whose_blob_was_removed_is_fetched_again() {
    let hub = TestHub::new(tiny());
    let folder = hub.run(REPO).folder();
    let blob = folder.join("model.safetensors").canonicalize().unwrap();
    std::fs::remove_file(blob).unwrap();
    let run = hub.run(REPO);
    assert_eq!(run.downloads().len(), 1);
    assert!(run.folder().join("model.safetensors").is_file());
}

#[test]
fn a_renamed_model_is_found() {
    let hub = TestHub::new(tiny());
    let folder = hub.run(server::FORMER_REPO).folder();
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
}
