//! GGUF files as gguf-py writes them: their tensors and metadata. Broken ones are in `gguf/hostile.rs`.
//!
//! `reference/gguf_files.py` makes the files of the folder `gguf`.

#[path = "gguf/hostile.rs"]
mod hostile;

use std::path::PathBuf;

use attentive_formats::gguf::{self, Array, GgufFile, Metadata, Value};
use attentive_formats::{FileError, TensorSet};

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gguf")).join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn open(name: &str) -> (TensorSet, Metadata) {
    gguf::open(&path(name)).unwrap()
}

/// A float tensor has this shape, and bit for bit the values that gguf-py reads.
fn check_floats(dtype: &str, shape: &[usize]) {
    let (set, _) = open("kinds.gguf");
    assert_eq!(set.dtype(dtype).unwrap().name(), dtype);
    assert_eq!(set.shape(dtype).unwrap(), shape, "{dtype}");
    let expected = bytes(&format!("{dtype}.f32"));
    let (expected, _) = expected.as_chunks::<4>();
    let expected: Vec<u32> = expected.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let read = set.floats(dtype).unwrap();
    let read: Vec<u32> = read.into_iter().map(f32::to_bits).collect();
    assert_eq!(read, expected, "{dtype}");
    assert_eq!(set.integers(dtype), None);
}

/// An integer tensor has the values that numpy wrote.
fn check_integers(dtype: &str) {
    let (set, _) = open("kinds.gguf");
    assert_eq!(set.dtype(dtype).unwrap().name(), dtype);
    assert_eq!(set.shape(dtype).unwrap(), [2, 3], "{dtype}");
    let expected = bytes(&format!("{dtype}.i64"));
    let (expected, _) = expected.as_chunks::<8>();
    let expected: Vec<i64> = expected.iter().map(|b| i64::from_le_bytes(*b)).collect();
    assert_eq!(set.integers(dtype).unwrap(), expected, "{dtype}");
    assert_eq!(set.floats(dtype), None);
}

#[test]
fn floats_are_read() {
    check_floats("F32", &[2, 3, 4, 5]);
    check_floats("F16", &[5]);
    check_floats("BF16", &[4, 2]);
    check_floats("F64", &[]);
}

#[test]
fn blocks_are_dequantized() {
    check_floats("Q4_0", &[3, 64]);
    check_floats("Q4_1", &[2, 3, 32]);
    check_floats("Q8_0", &[2, 64]);
    check_floats("Q4_K", &[2, 512]);
    check_floats("Q6_K", &[3, 256]);
}

#[test]
fn integers_are_read() {
    for dtype in ["I8", "I16", "I32", "I64"] {
        check_integers(dtype);
    }
}

#[test]
fn no_tensor_is_left_out() {
    let (set, metadata) = open("kinds.gguf");
    assert_eq!(set.names().count(), 13);
    assert_eq!(metadata.string("general.architecture"), Some("kinds"));
}

#[test]
fn version_two_is_read() {
    let mut bytes = bytes("kinds.gguf");
    let three = gguf::parse(&bytes).unwrap();
    bytes[4] = 2;
    assert_eq!(gguf::parse(&bytes).unwrap(), three);
}

#[test]
fn tensors_are_found_at_another_alignment() {
    let (set, metadata) = open("metadata.gguf");
    assert_eq!(metadata.integer("general.alignment"), Some(64));
    assert_eq!(set.info("one").unwrap().bytes.start % 64, 0);
    assert_eq!(set.floats("one").unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(set.shape("two").unwrap(), [2, 1]);
    assert_eq!(set.floats("two").unwrap(), [4.0, 5.0]);
}

#[test]
fn values_of_every_type_are_read() {
    let (_, metadata) = open("metadata.gguf");
    let check = |key: &str, value: Value| assert_eq!(metadata.get(key), Some(&value), "{key}");
    check("UINT8", Value::U8(200));
    check("INT8", Value::I8(-100));
    check("UINT16", Value::U16(60000));
    check("INT16", Value::I16(-30000));
    check("UINT32", Value::U32(4_000_000_000));
    check("INT32", Value::I32(-2_000_000_000));
    check("UINT64", Value::U64(u64::MAX));
    check("INT64", Value::I64(i64::MIN));
    check("FLOAT32", Value::F32(0.5));
    check("FLOAT64", Value::F64(0.1));
    check("BOOL", Value::Bool(true));
    check("STRING", Value::String("Grüße, 世界\n".to_owned()));
    assert_eq!(metadata.keys().count(), 27);
}

#[test]
fn arrays_of_every_type_are_read() {
    let (_, metadata) = open("metadata.gguf");
    let check = |key: &str, array: Array| {
        assert_eq!(metadata.get(key), Some(&Value::Array(array)), "{key}");
    };
    check("UINT8S", Array::U8(vec![0, u8::MAX]));
    check("INT8S", Array::I8(vec![i8::MIN, i8::MAX]));
    check("UINT16S", Array::U16(vec![0, u16::MAX]));
    check("INT16S", Array::I16(vec![i16::MIN, i16::MAX]));
    check("UINT32S", Array::U32(vec![0, u32::MAX]));
    check("INT32S", Array::I32(vec![i32::MIN, i32::MAX]));
    check("UINT64S", Array::U64(vec![0, u64::MAX]));
    check("INT64S", Array::I64(vec![i64::MIN, i64::MAX]));
    check("FLOAT32S", Array::F32(vec![-1.5, 0.25]));
    check("FLOAT64S", Array::F64(vec![0.1, -0.2]));
    check("BOOLS", Array::Bool(vec![true, false]));
    check("STRINGS", Array::String(strings(&["", "a", "ü"])));
    let inner = [strings(&["a", "b"]), strings(&["c"])];
    check("ARRAYS", Array::Array(inner.map(Array::String).into()));
}

fn strings(strings: &[&str]) -> Vec<String> {
    strings.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn getters_return_values_of_their_type() {
    let (_, metadata) = open("metadata.gguf");
    assert_eq!(metadata.string("STRING"), Some("Grüße, 世界\n"));
    assert_eq!(metadata.integer("UINT8"), Some(200));
    assert_eq!(metadata.integer("UINT64"), Some(u64::MAX));
    assert_eq!(metadata.float("FLOAT32"), Some(0.5));
    assert_eq!(metadata.float("FLOAT64"), Some(0.1));
    assert_eq!(metadata.bool("BOOL"), Some(true));
    assert_eq!(metadata.strings("STRINGS").unwrap(), ["", "a", "ü"]);
    assert_eq!(metadata.integers("UINT8S").unwrap(), [0, 255]);
    assert_eq!(metadata.integers("INT64S").unwrap(), [i64::MIN, i64::MAX]);
    assert_eq!(metadata.floats("FLOAT32S").unwrap(), [-1.5, 0.25]);
    assert_eq!(metadata.floats("FLOAT64S").unwrap(), [0.1, -0.2]);
}

#[test]
fn getters_return_none_for_other_types() {
    let (_, metadata) = open("metadata.gguf");
    assert_eq!(metadata.integer("INT8"), None, "it is negative");
    assert_eq!(metadata.integers("UINT64S"), None, "one is too large");
    assert_eq!(metadata.integer("FLOAT32"), None);
    assert_eq!(metadata.float("UINT8"), None);
    assert_eq!(metadata.string("UINT8"), None);
    assert_eq!(metadata.bool("UINT8"), None);
    assert_eq!(metadata.strings("STRING"), None);
    assert_eq!(metadata.integers("STRINGS"), None);
    assert_eq!(metadata.floats("INT8S"), None);
    assert_eq!(metadata.string("missing"), None);
}

#[test]
fn a_broken_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("short.gguf");
    std::fs::write(&file, &bytes("kinds.gguf")[..100]).unwrap();
    let error = gguf::open(&file).unwrap_err();
    assert!(matches!(error, FileError::Broken { .. }));
    assert!(error.to_string().contains("short.gguf"), "{error}");
}

#[test]
fn the_metadata_is_read_without_the_tensors() {
    let file = GgufFile::open(&path("kinds.gguf")).unwrap();
    let architecture = file.metadata().string("general.architecture");
    assert_eq!(architecture, Some("kinds"));
    assert_eq!(file.tensors().unwrap().0.names().count(), 13);
    // A tensor type that is not read.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.gguf");
    let mut bytes = bytes("kinds.gguf");
    // The header of the tensor: its name, one dimension of five elements, its type.
    let header = [&b"F16"[..], &[1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]].concat();
    let at = bytes.windows(header.len()).position(|it| it == header);
    bytes[at.unwrap() + header.len()] = 6;
    std::fs::write(&copy, bytes).unwrap();
    let file = GgufFile::open(&copy).unwrap();
    let error = file.tensors().unwrap_err();
    assert!(matches!(error, FileError::Unsupported { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "{}: tensor F16: its type 6 (Q5_0) is not supported; \
             supported are F32, F16, BF16, F64, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K and integers",
            copy.display()
        )
    );
}

#[test]
fn a_directory_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::create_dir(&path).unwrap();
    let error = gguf::open(&path).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }));
    let text = "this is a directory, and a file is needed here; put the file in its place";
    assert_eq!(error.to_string(), format!("{}: {text}", path.display()));
}
