//! Folders of recurrent encoder-decoders: saving, and invalid configs.

use std::path::Path;

use attentive_checkpoint::{self as checkpoint, TensorFile};
use burn::tensor::Device;

use crate::recurrent::{NAMES, open};
use crate::support::Golden;

#[test]
fn a_loaded_model_is_saved_unchanged() {
    let device = Device::flex();
    for name in NAMES {
        let golden = Golden::open(name);
        let (model, special) = checkpoint::load_recurrent(&golden.folder, &device).unwrap();
        assert_eq!(
            (special.decoder_start, special.eos.as_slice()),
            (Some(1), &[2][..])
        );
        let saved = tempfile::tempdir().unwrap();
        // Twice, as a later save replaces the files of an earlier one.
        for _ in 0..2 {
            checkpoint::save_recurrent(saved.path(), &model, &special).unwrap();
        }
        let files = std::fs::read_dir(saved.path()).unwrap().count();
        assert_eq!(files, 2, "{name}");
        let (reloaded, reloaded_special) =
            checkpoint::load_recurrent(saved.path(), &device).unwrap();
        assert_eq!(
            (reloaded.config(), reloaded_special),
            (model.config(), special),
            "{name}"
        );
        let open = |folder: &Path| TensorFile::from_folder(folder).unwrap();
        let (ours, theirs) = (open(saved.path()), open(&golden.folder));
        assert_eq!(ours.names(), theirs.names(), "{name}");
        for key in theirs.names() {
            assert_eq!(ours.shape(&key), theirs.shape(&key), "{name} {key}");
            assert_eq!(ours.floats(&key).unwrap(), theirs.floats(&key).unwrap());
        }
    }
}

#[test]
fn names_and_shapes_of_parameters() {
    for name in NAMES {
        let (_, model) = open(name, &Device::flex());
        let lines = attentive_model::parameters(&model);
        let lines = lines.iter().map(|it| format!("{} {:?}", it.name, it.shape));
        let lines: Vec<String> = lines.collect();
        insta::assert_snapshot!(format!("parameters_{name}"), lines.join("\n"));
    }
}

#[test]
fn invalid_settings_are_refused_in_a_sentence() {
    let mut errors = Vec::new();
    let mut check = |what: &str, name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let folder = tempfile::tempdir().unwrap();
        let golden = Golden::open(name);
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(golden.folder.join(file), folder.path().join(file)).unwrap();
        }
        let path = folder.path().join("config.json");
        let mut json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut json);
        std::fs::write(&path, json.to_string()).unwrap();
        let redact = |error: String| error.replace(&folder.path().display().to_string(), "FOLDER");
        let error = checkpoint::load_recurrent(folder.path(), &Device::flex()).err();
        let error = error.map_or("(loads)".to_owned(), |error| redact(error.to_string()));
        errors.push(format!("{what}\n  {error}"));
        if what == "as a transformer" {
            let load = checkpoint::load(folder.path(), &Device::flex()).unwrap_err();
            let describe = checkpoint::describe(folder.path()).unwrap_err();
            assert_eq!(load.to_string(), describe.to_string());
            errors.push(format!("  {}", redact(load.to_string())));
        }
    };
    check("as a transformer", "bahdanau-gru", &|_| ());
    check("a transformer", "t5", &|_| ());
    let mut set = |what: &str, key: &str, value: serde_json::Value| {
        check(what, "bahdanau-gru", &|json| {
            json["attentive"][key] = value.clone();
        });
    };
    set("another cell", "cell", "elman".into());
    set("no source", "source_vocabulary", 0.into());
    set("no target", "target_vocabulary", 0.into());
    set("no length", "length", 0.into());
    set("no width", "width", 0.into());
    set("huge hidden width", "hidden_width", u64::MAX.into());
    set("no attention", "attention_width", 0.into());
    set("no layers", "layers", 0.into());
    set("dropout of 1", "dropout", 1.into());
    set("init_std of 0", "init_std", 0.into());
    set("bidirectional, copied", "first_state", "copied".into());
    set("unidirectional, mapped", "directions", "forward".into());
    set("an unknown direction", "directions", "sideways".into());
    set("an unknown key", "heads", 4.into());
    set("other sizes", "attention_width", 7.into());
    set("another cell's weights", "cell", "lstm".into());
    set("fewer layers", "layers", 1.into());
    check("no settings", "bahdanau-gru", &|json| {
        json["attentive"] = serde_json::Value::Null;
    });
    check("no id", "bahdanau-gru", &|json| {
        json["eos_token_id"] = "</s>".into();
    });
    insta::assert_snapshot!(errors.join("\n"));
}
