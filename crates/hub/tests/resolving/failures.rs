//! Failing runs: the error, and what is left in the cache.

use super::*;

#[test]
fn a_missing_repository_or_revision_is_reported() {
    let hub = TestHub::new(tiny());
    assert_eq!(
        hub.run("owner/none").problem(),
        "the hub has no model owner/none with a revision main; check the spelling, or set HF_TOKEN if it is private"
    );
    assert_eq!(
        hub.run("owner/tiny@v9").problem(),
        "the hub has no model owner/tiny with a revision v9; check the spelling, or set HF_TOKEN if it is private"
    );
    assert!(!hub.settings.cache.exists(), "nothing was cached");
}

#[test]
fn a_denied_repository_is_reported() {
    let mut model = tiny();
    model.refusal = Some((401, "GatedRepo"));
    let hub = TestHub::new(model);
    assert_eq!(
        hub.run(REPO).problem(),
        "the hub denies anonymous users access to owner/tiny (401); check the spelling; if it is private, or has conditions to \
         accept on its page, set HF_TOKEN"
    );
    let hub = hub.with_token("hf_other");
    hub.server
        .change(|model| model.refusal = Some((403, "GatedRepo")));
    assert_eq!(
        hub.run(REPO).problem(),
        "the hub denies the owner of this token access to owner/tiny (403); accept its conditions on its page, then run \
         this again"
    );
}

#[test]
fn offline_and_not_cached_is_reported_without_a_request() {
    let mut hub = TestHub::new(tiny());
    hub.offline();
    let run = hub.run(REPO);
    assert!(run.requests.is_empty());
    let cache = hub.settings.cache.display().to_string();
    assert_eq!(
        run.problem(),
        format!(
            "owner/tiny is not complete in the cache {cache} (config.json is missing) and HF_HUB_OFFLINE forbids downloading it; \
             unset HF_HUB_OFFLINE, or set HF_HOME to the cache that has it"
        )
    );
    hub.settings.network = Network::Online;
    hub.run_for(REPO, FileSet::Config).folder();
    hub.offline();
    assert!(
        hub.run(REPO)
            .problem()
            .contains("(model.safetensors is missing)")
    );
    let run = hub.run_for(REPO, FileSet::Tokenizer);
    assert!(run.problem().contains("(its tokenizer is missing)"));
}

#[test]
fn missing_required_files_are_reported() {
    let mut model = tiny();
    model.files.remove("config.json");
    let problem = TestHub::new(model).run(REPO).problem();
    assert!(problem.starts_with("owner/tiny has no config.json"));
    let mut model = tiny();
    model.files.remove("model.safetensors");
    model.files.remove("pytorch_model.bin");
    let problem = TestHub::new(model).run(REPO).problem();
    assert!(problem.starts_with("owner/tiny has no weights (model.safetensors, "));
    let mut model = sharded();
    model.files.remove("model-2-of-2.safetensors");
    let hub = TestHub::new(model);
    let run = hub.run(REPO);
    assert_eq!(run.downloads().len(), 2, "no shard was fetched");
    assert!(
        run.problem()
            .starts_with("owner/tiny has no model-2-of-2.safetensors")
    );
}

#[test]
fn an_interrupted_download_is_resumed() {
    for storage in [None, Some("127.0.0.1".to_owned())] {
        let mut model = tiny();
        model.storage = storage;
        model.interruptions = (100_000, 2);
        let hub = TestHub::new(model);
        let run = hub.run(REPO);
        let ranges: Vec<&str> = run
            .requests
            .iter()
            .filter(|it| it.contains("/resolve/"))
            .filter_map(|it| it.split_once(" bytes=").map(|(_, range)| range))
            .collect();
        assert_eq!(ranges, ["100000-", "200000-"]);
        assert!(run.events.iter().any(|event| event.starts_with("Retrying")));
        let folder = run.folder();
        assert_eq!(
            std::fs::read(folder.join("model.safetensors")).unwrap(),
            weights(300_000)
        );
    }
}

#[test]
fn a_failed_download_is_resumed_by_the_next_run() {
    let mut model = tiny();
    // Each attempt restarts, and makes no progress after the first.
    model.ranges = false;
    model.interruptions = (100_000, 4);
    let hub = TestHub::new(model);
    let run = hub.run(REPO);
    assert_eq!(
        run.problem().split(" (").next().unwrap(),
        "model.safetensors was interrupted after 100000 of 300000 bytes"
    );
    let partial_files = |hub: &TestHub| {
        hub.blobs()
            .iter()
            .filter(|it| it.ends_with(".incomplete"))
            .count()
    };
    assert_eq!(partial_files(&hub), 1);
    assert_eq!(hub.blobs().len(), 6, "five small files and a partial one");
    hub.server.change(|model| model.ranges = true);
    let run = hub.run(REPO);
    assert!(run.downloads()[0].ends_with("model.safetensors bytes=100000-"));
    assert!(run.events[0].contains("present: 100000"));
    let folder = run.folder();
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
    assert_eq!(partial_files(&hub), 0);
}

#[test]
fn a_server_without_ranges_restarts() {
    let mut model = tiny();
    model.ranges = false;
    model.interruptions = (100_000, 1);
    let hub = TestHub::new(model);
    let folder = hub.run(REPO).folder();
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
}

#[test]
fn partial_files_that_are_too_long_or_complete_are_handled() {
    for length in [300_000, 300_001, 900_000] {
        let hub = TestHub::new(tiny());
        let folder = hub.run(REPO).folder();
        let blob = folder.join("model.safetensors").canonicalize().unwrap();
        let mut partial = std::fs::read(&blob).unwrap();
        partial.resize(length, 0);
        std::fs::remove_file(&blob).unwrap();
        let name = format!("{}.incomplete", blob.file_name().unwrap().display());
        std::fs::write(blob.with_file_name(name), partial).unwrap();
        let run = hub.run(REPO);
        assert_eq!(run.downloads().len(), usize::from(length > 300_000));
        let file = run.folder().join("model.safetensors");
        assert_eq!(std::fs::read(file).unwrap(), weights(300_000));
    }
}

#[test]
fn a_file_of_the_wrong_size_is_discarded() {
    for size_error in [-1, 1] {
        let mut model = tiny();
        model.size_error = size_error;
        let hub = TestHub::new(model);
        let problem = hub.run(REPO).problem();
        let stated_size = 300_000 + size_error;
        assert_eq!(
            problem,
            format!(
                "model.safetensors should have {stated_size} bytes and has 300000; the download was discarded, try again"
            )
        );
        assert_eq!(hub.blobs().len(), 5, "the small files");
    }
}

#[test]
fn without_a_network_the_cache_is_used() {
    let mut hub = TestHub::new(tiny());
    let folder = hub.run(REPO).folder();
    hub.server.change(|model| model.refusal = Some((503, "")));
    let run = hub.run(REPO);
    assert!(run.events[0].contains("status 503"), "{:?}", run.events);
    assert_eq!(run.folder(), folder);
    hub.disconnect();
    let run = hub.run(REPO);
    assert!(run.events[0].starts_with("UsingCache"), "{:?}", run.events);
    assert_eq!(run.folder(), folder);
    let problem = hub.run("owner/other").problem();
    assert!(
        problem.starts_with("the hub cannot be reached ("),
        "{problem}"
    );
}

#[test]
fn an_earlier_commit_is_used_until_a_newer_one_is_complete() {
    let mut hub = TestHub::new(tiny());
    let old = hub.run(REPO).folder();
    hub.server.change(|model| {
        model.commit = "b".repeat(40);
        let file = model.files.get_mut("model.safetensors").unwrap();
        *file = weights(400_000);
        model.ranges = false;
        model.interruptions = (10, 1000);
    });
    let run = hub.run(REPO);
    assert!(run.events.last().unwrap().starts_with("UsingCache"));
    assert_eq!(run.folder(), old);
    hub.offline();
    assert_eq!(hub.run(REPO).folder(), old);
}

#[test]
fn names_from_the_hub_do_not_escape_the_cache() {
    let mut model = tiny();
    model.commit = "../../outside".to_owned();
    let hub = TestHub::new(model);
    assert!(
        hub.run(REPO)
            .problem()
            .contains("`../../outside` is not a commit")
    );
    let mut model = tiny();
    model.etag = "../../../outside".to_owned();
    let hub = TestHub::new(model);
    assert!(hub.run(REPO).problem().contains(" is not an etag"));
    let mut model = tiny();
    let modules = br#"[{"path": "../../../outside"}, {"path": "/outside"}, {"path": "7_Pooling"}, {"path": 3}]"#;
    model
        .files
        .insert("modules.json".to_owned(), modules.to_vec());
    for outside in ["../../../outside/config.json", "/outside/config.json"] {
        model.listed.push(outside.to_owned());
    }
    let hub = TestHub::new(model);
    // Invalid modules are reported by the loader, not by the download.
    let run = hub.run(REPO);
    assert!(!run.requests.iter().any(|it| it.contains("outside")));
    assert!(run.folder().join("7_Pooling/config.json").is_file());
    assert_eq!(names(hub.folder.path()), ["hub"]);
    let mut model = sharded();
    let index = br#"{"weight_map": {"a": "../../../outside.safetensors"}}"#;
    let name = "model.safetensors.index.json".to_owned();
    model.files.insert(name, index.to_vec());
    model.listed.push("../../../outside.safetensors".to_owned());
    let hub = TestHub::new(model);
    assert!(hub.run(REPO).problem().contains("is not a file name"));
    assert_eq!(names(hub.folder.path()), ["hub"]);
}
