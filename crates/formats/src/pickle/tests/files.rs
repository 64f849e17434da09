//! Files written by PyTorch are read as PyTorch reads them.

use serde_json::Value;

use super::{FILES, bytes_of, check, path, unsupported};
use crate::pickle::{open, open_sharded};
use crate::{FileError, TensorSet};

fn expected() -> serde_json::Map<String, Value> {
    let text = bytes_of("expected.json");
    serde_json::from_slice(&text).unwrap()
}

fn compare(file: &str, set: &TensorSet, expected: &Value) {
    for (name, tensor) in expected.as_object().unwrap() {
        let context = format!("{file}, {name}");
        let dtype = set.dtype(name).unwrap_or_else(|| panic!("{context}"));
        assert_eq!(dtype.name(), tensor["kind"], "{context}");
        let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).unwrap();
        assert_eq!(set.shape(name).unwrap(), shape, "{context}");
        let values = tensor["values"].clone();
        if let Some(floats) = set.floats(name) {
            let values: Vec<f32> = serde_json::from_value(values).unwrap();
            assert_eq!(floats, values, "{context}");
        } else {
            let values: Vec<i64> = serde_json::from_value(values).unwrap();
            assert_eq!(set.integers(name).unwrap(), values, "{context}");
        }
    }
}

#[test]
fn tensors_equal_those_of_pytorch() {
    let expected = expected();
    assert_eq!(expected.len(), FILES.len() - 6);
    for (file, tensors) in &expected {
        check(&bytes_of(file)).unwrap();
        let set = open(&path(file)).unwrap();
        let names: Vec<&str> = set.names().collect();
        let mut expected_names: Vec<&str> = tensors
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        expected_names.sort_unstable();
        assert_eq!(names, expected_names, "{file}");
        compare(file, &set, tensors);
    }
}

#[test]
fn shared_storages_are_shared_in_the_file() {
    for file in ["views_zip.bin", "views_older.bin"] {
        let set = open(&path(file)).unwrap();
        let info = |name: &str| set.info(name).unwrap().clone();
        assert_eq!(info("tied"), info("tied_again"));
        let whole = info("whole").bytes;
        assert_eq!(info("part").bytes, whole.start + 20..whole.start + 36);
        assert_eq!(info("part").strides, None);
        assert_eq!(info("transposed").bytes, whole.start + 48..whole.end);
        assert_eq!(info("transposed").strides, Some(vec![1, 4]));
        // From its first element, 2, to its last, 22.
        assert_eq!(info("column").bytes, whole.start + 8..whole.start + 92);
        // One row is contiguous, whatever the strides of dimensions of size one.
        assert_eq!(info("one_row").strides, None);
        assert_eq!(info("empty_part").bytes.len(), 0);
        assert_eq!(info("repeated").bytes.len(), 16);
        assert_eq!(info("repeated").strides, Some(vec![0, 1]));
    }
}

#[test]
fn an_expanded_tensor_of_a_trillion_elements_is_refused() {
    for file in ["expanded_zip.bin", "expanded_older.bin"] {
        unsupported(
            &bytes_of(file),
            "tensor a: it has 1099511627776 elements, and its storage has 1",
        );
    }
}

#[test]
fn a_file_without_tensors_is_refused() {
    for file in ["nothing_zip.bin", "nothing_older.bin"] {
        unsupported(&bytes_of(file), "it has no tensors");
    }
}

#[test]
fn a_file_that_would_run_a_command_is_refused() {
    for file in ["hostile_zip.bin", "hostile_older.bin"] {
        // What Python calls os.system on Unix.
        unsupported(
            &bytes_of(file),
            "it wants to call `posix.system`, which is not among the few functions that build tensors",
        );
        let error = open(&path(file)).unwrap_err();
        assert!(matches!(error, FileError::Unsupported { .. }), "{error}");
        assert!(!error.to_string().contains("again"), "{error}");
    }
}

#[test]
fn shards_are_opened_by_their_index() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["views_zip.bin", "parameters_older.bin"] {
        std::fs::copy(path(file), folder.path().join(file)).unwrap();
    }
    let index = folder.path().join("pytorch_model.bin.index.json");
    let write = |json: &str| std::fs::write(&index, json).unwrap();

    write(r#"{"weight_map": {"tied": "views_zip.bin", "plain": "parameters_older.bin"}}"#);
    let set = open_sharded(&index).unwrap();
    let expected = expected();
    for file in ["views_zip.bin", "parameters_older.bin"] {
        compare(file, &set, &expected[file]);
    }

    for (json, problem) in [
        (
            r#"{"weight_map": {"gone": "views_zip.bin"}}"#,
            "the index says that tensor gone is in it, and it is not",
        ),
        (
            r#"{"weight_map": {"tied": "../views_zip.bin"}}"#,
            "which is not a file name",
        ),
        (r#"{"weight_map": {"tied": "gone.bin"}}"#, "gone.bin"),
        ("{}", "it has no weight_map"),
    ] {
        write(json);
        let error = open_sharded(&index).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
