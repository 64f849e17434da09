//! Runs in which something goes wrong: what is said, and what is left.

use super::*;

#[test]
fn what_the_hub_does_not_have_is_told() {
    let place = Place::new(tiny());
    assert_eq!(
        place.run("owner/none").problem(),
        "the hub has no model owner/none with a revision main; check the spelling, or set HF_TOKEN if it is private"
    );
    assert_eq!(
        place.run("owner/tiny@v9").problem(),
        "the hub has no model owner/tiny with a revision v9; check the spelling, or set HF_TOKEN if it is private"
    );
    assert!(!place.settings.cache.exists(), "nothing was kept");
}

#[test]
fn what_the_hub_does_not_give_is_told() {
    let mut model = tiny();
    model.refusal = Some((401, "GatedRepo"));
    let place = Place::new(model);
    assert_eq!(
        place.run(REPO).problem(),
        "the hub does not give owner/tiny to strangers (401); check the spelling; if it is private, or has conditions to \
         accept on its page, set HF_TOKEN"
    );
    let place = place.with_token("hf_other");
    place
        .server
        .change(|model| model.refusal = Some((403, "GatedRepo")));
    assert_eq!(
        place.run(REPO).problem(),
        "the hub does not give owner/tiny to the owner of this token (403); accept its conditions on its page, then run \
         this again"
    );
}

#[test]
fn offline_and_not_cached_is_told_without_asking() {
    let mut place = Place::new(tiny());
    place.offline();
    let run = place.run(REPO);
    assert!(run.requests.is_empty());
    let cache = place.settings.cache.display().to_string();
    assert_eq!(
        run.problem(),
        format!(
            "owner/tiny is not whole in the cache {cache} (config.json is missing) and HF_HUB_OFFLINE forbids to fetch it; \
             unset HF_HUB_OFFLINE, or name the cache that has it with HF_HOME"
        )
    );
    place.settings.network = Network::Online;
    place.run_for(REPO, Wanted::Description).folder();
    place.offline();
    assert!(
        place
            .run(REPO)
            .problem()
            .contains("(model.safetensors is missing)")
    );
    let run = place.run_for(REPO, Wanted::Tokenizer);
    assert!(run.problem().contains("(its tokenizer is missing)"));
}

#[test]
fn files_without_which_there_is_no_model() {
    let mut model = tiny();
    model.files.remove("config.json");
    let problem = Place::new(model).run(REPO).problem();
    assert!(problem.starts_with("owner/tiny has no config.json"));
    let mut model = tiny();
    model.files.remove("model.safetensors");
    model.files.remove("pytorch_model.bin");
    let problem = Place::new(model).run(REPO).problem();
    assert!(problem.starts_with("owner/tiny has no weights (model.safetensors, "));
    let mut model = sharded();
    model.files.remove("model-2-of-2.safetensors");
    let place = Place::new(model);
    let run = place.run(REPO);
    assert_eq!(run.downloads().len(), 2, "no shard was fetched");
    assert!(
        run.problem()
            .starts_with("owner/tiny has no model-2-of-2.safetensors")
    );
}

#[test]
fn a_download_that_breaks_goes_on() {
    for storage in [None, Some("127.0.0.1".to_owned())] {
        let mut model = tiny();
        model.storage = storage;
        model.cut = (100_000, 2);
        let place = Place::new(model);
        let run = place.run(REPO);
        let ranges: Vec<&str> = run
            .requests
            .iter()
            .filter(|it| it.contains("/resolve/"))
            .filter_map(|it| it.split_once(" bytes=").map(|(_, range)| range))
            .collect();
        assert_eq!(ranges, ["100000-", "200000-"]);
        assert!(run.notes.iter().any(|note| note.starts_with("Retrying")));
        let folder = run.folder();
        assert_eq!(
            std::fs::read(folder.join("model.safetensors")).unwrap(),
            weights(300_000)
        );
    }
}

#[test]
fn a_download_that_was_given_up_goes_on_in_the_next_run() {
    let mut model = tiny();
    // Each attempt begins anew, and brings nothing new after the first.
    model.ranges = false;
    model.cut = (100_000, 4);
    let place = Place::new(model);
    let run = place.run(REPO);
    assert_eq!(
        run.problem().split(" (").next().unwrap(),
        "model.safetensors broke off after 100000 of 300000 bytes"
    );
    let halves = |place: &Place| {
        place
            .blobs()
            .iter()
            .filter(|it| it.ends_with(".incomplete"))
            .count()
    };
    assert_eq!(halves(&place), 1);
    assert_eq!(place.blobs().len(), 6, "five small files and a half one");
    place.server.change(|model| model.ranges = true);
    let run = place.run(REPO);
    assert!(run.downloads()[0].ends_with("model.safetensors bytes=100000-"));
    assert!(run.notes[0].contains("present: 100000"));
    let folder = run.folder();
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
    assert_eq!(halves(&place), 0);
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let mut model = tiny();
    model.ranges = false;
    model.cut = (100_000, 1);
    let place = Place::new(model);
    let folder = place.run(REPO).folder();
    assert_eq!(
        std::fs::read(folder.join("model.safetensors")).unwrap(),
        weights(300_000)
    );
}

#[test]
fn halves_that_are_too_long_or_whole_are_handled() {
    for length in [300_000, 300_001, 900_000] {
        let place = Place::new(tiny());
        let folder = place.run(REPO).folder();
        let blob = folder.join("model.safetensors").canonicalize().unwrap();
        let mut half = std::fs::read(&blob).unwrap();
        half.resize(length, 0);
        std::fs::remove_file(&blob).unwrap();
        let name = format!("{}.incomplete", blob.file_name().unwrap().display());
        std::fs::write(blob.with_file_name(name), half).unwrap();
        let run = place.run(REPO);
        assert_eq!(run.downloads().len(), usize::from(length > 300_000));
        let file = run.folder().join("model.safetensors");
        assert_eq!(std::fs::read(file).unwrap(), weights(300_000));
    }
}

#[test]
fn a_file_of_another_size_than_announced_is_not_kept() {
    for lie in [-1, 1] {
        let mut model = tiny();
        model.lie = lie;
        let place = Place::new(model);
        let problem = place.run(REPO).problem();
        let announced = 300_000 + lie;
        assert_eq!(
            problem,
            format!(
                "model.safetensors was announced with {announced} bytes and came with 300000; nothing of it was kept, try again"
            )
        );
        assert_eq!(place.blobs().len(), 5, "the small files");
    }
}

#[test]
fn without_a_network_the_cache_does() {
    let mut place = Place::new(tiny());
    let folder = place.run(REPO).folder();
    place.server.change(|model| model.refusal = Some((503, "")));
    let run = place.run(REPO);
    assert!(run.notes[0].contains("status 503"), "{:?}", run.notes);
    assert_eq!(run.folder(), folder);
    place.unplug();
    let run = place.run(REPO);
    assert!(run.notes[0].starts_with("CacheInstead"), "{:?}", run.notes);
    assert_eq!(run.folder(), folder);
    let problem = place.run("owner/other").problem();
    assert!(
        problem.starts_with("the hub cannot be reached ("),
        "{problem}"
    );
}

#[test]
fn an_earlier_commit_does_until_a_newer_one_is_whole() {
    let mut place = Place::new(tiny());
    let old = place.run(REPO).folder();
    place.server.change(|model| {
        model.commit = "b".repeat(40);
        let file = model.files.get_mut("model.safetensors").unwrap();
        *file = weights(400_000);
        model.ranges = false;
        model.cut = (10, 1000);
    });
    let run = place.run(REPO);
    assert!(run.notes.last().unwrap().starts_with("CacheInstead"));
    assert_eq!(run.folder(), old);
    place.offline();
    assert_eq!(place.run(REPO).folder(), old);
}

#[test]
fn names_of_the_hub_do_not_lead_out_of_the_cache() {
    let mut model = tiny();
    model.commit = "../../outside".to_owned();
    let place = Place::new(model);
    assert!(
        place
            .run(REPO)
            .problem()
            .contains("`../../outside` is no commit")
    );
    let mut model = tiny();
    model.etag = "../../../outside".to_owned();
    let place = Place::new(model);
    assert!(place.run(REPO).problem().contains(" is no etag"));
    let mut model = tiny();
    let modules = br#"[{"path": "../../../outside"}, {"path": "/outside"}, {"path": "7_Pooling"}, {"path": 3}]"#;
    model
        .files
        .insert("modules.json".to_owned(), modules.to_vec());
    for outside in ["../../../outside/config.json", "/outside/config.json"] {
        model.listed.push(outside.to_owned());
    }
    let place = Place::new(model);
    // Whoever needs the modules will complain; others need not.
    let run = place.run(REPO);
    assert!(!run.requests.iter().any(|it| it.contains("outside")));
    assert!(run.folder().join("7_Pooling/config.json").is_file());
    assert_eq!(names(place.folder.path()), ["hub"]);
    let mut model = sharded();
    let index = br#"{"weight_map": {"a": "../../../outside.safetensors"}}"#;
    let name = "model.safetensors.index.json".to_owned();
    model.files.insert(name, index.to_vec());
    model.listed.push("../../../outside.safetensors".to_owned());
    let place = Place::new(model);
    assert!(place.run(REPO).problem().contains("is no file name"));
    assert_eq!(names(place.folder.path()), ["hub"]);
}
