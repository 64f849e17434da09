//! What `LoadOptions` change, folders whose config.json does not say everything, and the number of labels where it says two.

use std::collections::BTreeMap;
use std::path::Path;

use attentive_checkpoint::{
    self as checkpoint, CheckpointError, Heads, LoadOptions, RequestedOutputs, TensorFile,
    model_tensors, write_tensors,
};
use burn::tensor::{Device, TensorData};
use serde_json::{Value, json};

use crate::support::{Golden, folder};

const CLASSIFIER: &str = "bert-classifier";

/// A copy of a fixture with another config.json.
fn copy(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(folder(name).join("config.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    change(&mut json);
    std::fs::write(copy.path().join("config.json"), json.to_string()).unwrap();
    let weights = "model.safetensors";
    std::fs::copy(folder(name).join(weights), copy.path().join(weights)).unwrap();
    copy
}

/// Replaces a tensor by zeros of another shape.
fn reshape(folder: &Path, name: &str, shape: [usize; 2]) {
    let path = folder.join("model.safetensors");
    let file = TensorFile::open(&path).unwrap();
    let mut tensors = BTreeMap::new();
    for other in file.names() {
        let shape = file.shape(&other).unwrap().to_vec();
        let data = TensorData::new(file.floats(&other).unwrap(), shape);
        tensors.insert(other, data);
    }
    let zeros = vec![0f32; shape[0] * shape[1]];
    let before = tensors.insert(name.to_owned(), TensorData::new(zeros, shape.to_vec()));
    assert!(before.is_some(), "there is no {name}");
    write_tensors(&path, tensors, Default::default()).unwrap();
}

fn without_heads() -> LoadOptions {
    LoadOptions {
        heads: Heads::None,
        ..LoadOptions::default()
    }
}

fn error(folder: &Path, options: &LoadOptions) -> CheckpointError {
    checkpoint::load_with(folder, options, &Device::flex()).unwrap_err()
}

/// The model of a classifier's folder, loaded without heads, has the hidden states of BertModel and nothing else.
fn check_hidden_states(folder: &Path) {
    let (model, description) =
        checkpoint::load_with(folder, &without_heads(), &Device::flex()).unwrap();
    assert!(model.config().pooler.is_none());
    assert!(model.config().sequence_classifier.is_none());
    let golden = Golden::open(CLASSIFIER);
    let requested = RequestedOutputs::default();
    let outputs = checkpoint::forward(&model, &description, &golden.file, "", requested).unwrap();
    let names: Vec<&str> = outputs.keys().map(String::as_str).collect();
    assert_eq!(names, ["last_hidden_state"]);
    for (name, data) in outputs {
        golden.check_unpadded("", &name, data);
    }
}

#[test]
fn without_heads_a_model_has_its_hidden_states() {
    check_hidden_states(&folder(CLASSIFIER));
}

#[test]
fn heads_that_are_not_loaded_are_not_checked() {
    let wrong_shape = copy(CLASSIFIER, |_| {});
    reshape(wrong_shape.path(), "classifier.weight", [7, 20]);
    let refused = error(wrong_shape.path(), &LoadOptions::default());
    assert!(
        matches!(refused, CheckpointError::Tensors { .. }),
        "{refused}"
    );
    check_hidden_states(wrong_shape.path());

    let pooler = copy(CLASSIFIER, |_| {});
    reshape(pooler.path(), "bert.pooler.dense.weight", [3, 20]);
    error(pooler.path(), &LoadOptions::default());
    check_hidden_states(pooler.path());

    let classes: [fn(&mut Value); 3] = [
        |json| json["architectures"] = json!(["BertForSomethingElse"]),
        |json| json["problem_type"] = json!("something_else"),
        |json| json["id2label"] = json!("something else"),
    ];
    for change in classes {
        let changed = copy(CLASSIFIER, change);
        let refused = error(changed.path(), &LoadOptions::default());
        assert!(
            matches!(refused, CheckpointError::Config { .. }),
            "{refused}"
        );
        check_hidden_states(changed.path());
    }
}

/// Only heads are ignored: a layer that config.json does not have, or a tensor that is not there, is another model.
#[test]
fn without_heads_the_stack_is_still_checked() {
    let shorter = copy(CLASSIFIER, |json| json["num_hidden_layers"] = json!(1));
    let CheckpointError::Tensors { problems, .. } = error(shorter.path(), &without_heads()) else {
        panic!("a tensor of layer 1 is not reported");
    };
    assert_eq!((problems.missing.len(), problems.misshapen.len()), (0, 0));
    assert_eq!(problems.unexpected.len(), 16, "{problems}");
    for name in &problems.unexpected {
        assert!(name.starts_with("bert.encoder.layer.1."), "{name}");
    }
    let longer = copy(CLASSIFIER, |json| json["num_hidden_layers"] = json!(3));
    let CheckpointError::Tensors { problems, .. } = error(longer.path(), &without_heads()) else {
        panic!("the missing tensors of layer 2 are not reported");
    };
    assert_eq!(problems.missing.len(), 16, "{problems}");
    let wider = copy(CLASSIFIER, |json| json["intermediate_size"] = json!(35));
    let CheckpointError::Tensors { problems, .. } = error(wider.path(), &without_heads()) else {
        panic!("a mis-shaped tensor is not reported");
    };
    assert_eq!(problems.misshapen.len(), 6, "{problems}");
}

#[test]
fn a_missing_model_type_is_said_to_be_missing() {
    let untyped = copy(CLASSIFIER, |json| {
        json.as_object_mut().unwrap().remove("model_type");
    });
    let refused = error(untyped.path(), &LoadOptions::default());
    assert!(
        matches!(refused, CheckpointError::NoType { .. }),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(
        text.contains(
            "config.json has no model_type; add one, or name it when loading; supported are gpt2, "
        ),
        "{text}"
    );
    assert!(!text.contains("\"\""), "{text}");
    let described = checkpoint::describe(untyped.path()).unwrap_err();
    assert!(
        matches!(described, CheckpointError::NoType { .. }),
        "{described}"
    );
}

#[test]
fn a_model_type_can_be_named_when_loading() {
    let (expected, _) = checkpoint::load(&folder(CLASSIFIER), &Device::flex()).unwrap();
    let options = LoadOptions {
        model_type: Some("bert".to_owned()),
        ..LoadOptions::default()
    };
    let changes: [fn(&mut Value); 2] = [
        |json| {
            json.as_object_mut().unwrap().remove("model_type");
        },
        |json| json["model_type"] = json!("berd"),
    ];
    for change in changes {
        let changed = copy(CLASSIFIER, change);
        let (model, description) =
            checkpoint::load_with(changed.path(), &options, &Device::flex()).unwrap();
        assert_eq!(description.model_type, "bert");
        assert_eq!(model_tensors(&model), model_tensors(&expected));
    }
    let unknown = LoadOptions {
        model_type: Some("berd".to_owned()),
        ..LoadOptions::default()
    };
    let refused = error(&folder(CLASSIFIER), &unknown);
    assert!(
        matches!(refused, CheckpointError::UnknownType { .. }),
        "{refused}"
    );
}

/// The classes of a config.json, and their names.
fn classes(labels: Value, number: Value) -> Result<(usize, Vec<String>), CheckpointError> {
    let folder = copy(CLASSIFIER, |json| {
        json["id2label"] = labels;
        json["num_labels"] = number;
    });
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let description = checkpoint::describe(folder.path())?;
    let classifier = description.config.sequence_classifier.unwrap();
    Ok((classifier.classes, description.labels))
}

/// As in transformers 5.22, `num_labels` counts, and names of another number are not used.
#[test]
fn num_labels_counts_beside_another_number_of_names() {
    let two = || json!({ "0": "no", "1": "yes" });
    let placeholders = json!({ "0": "LABEL_0", "1": "LABEL_1" });
    let none: Vec<String> = Vec::new();
    assert_eq!(
        classes(placeholders, json!(50)).unwrap(),
        (50, none.clone())
    );
    assert_eq!(classes(two(), json!(3)).unwrap(), (3, none.clone()));
    assert_eq!(classes(two(), json!(1)).unwrap(), (1, none.clone()));
    assert_eq!(classes(Value::Null, json!(4)).unwrap(), (4, none.clone()));
    assert_eq!(classes(Value::Null, Value::Null).unwrap(), (2, none));
    let names = vec!["no".to_owned(), "yes".to_owned()];
    assert_eq!(classes(two(), json!(2)).unwrap(), (2, names.clone()));
    assert_eq!(classes(two(), Value::Null).unwrap(), (2, names));
    let refused = classes(two(), json!("3")).unwrap_err().to_string();
    let message = "config.json: num_labels: \"3\" is not a whole number";
    assert!(refused.ends_with(message), "{refused}");
}

#[test]
fn a_folder_with_num_labels_and_two_placeholders_loads() {
    let folder = copy(CLASSIFIER, |json| {
        json["id2label"] = json!({ "0": "LABEL_0", "1": "LABEL_1" });
        json["label2id"] = json!({ "LABEL_0": 0, "LABEL_1": 1 });
        json["num_labels"] = json!(6);
    });
    let (model, description) = checkpoint::load(folder.path(), &Device::flex()).unwrap();
    let golden = Golden::open(CLASSIFIER);
    let requested = RequestedOutputs::default();
    let outputs = checkpoint::forward(&model, &description, &golden.file, "", requested).unwrap();
    for (name, data) in outputs {
        golden.check_unpadded("", &name, data);
    }
}
