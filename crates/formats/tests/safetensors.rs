//! Safetensors files: single, sharded, and hostile.

use std::path::Path;

use attentive_formats::safetensors::{open, open_sharded, parse};
use attentive_formats::{DType, FileError, ParseError};
use proptest::prelude::*;

/// A file with this header and tensor data.
fn file(header: &str, tensors: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(tensors);
    bytes
}

fn good() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},
        "a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
        "f16":{"dtype":"F16","shape":[2],"data_offsets":[24,28]},
        "bf16":{"dtype":"BF16","shape":[1,2],"data_offsets":[28,32]},
        "i64":{"dtype":"I64","shape":[],"data_offsets":[32,40]}}"#;
    let mut tensors = Vec::new();
    tensors.extend((1..=6).flat_map(|i| (i as f32).to_le_bytes()));
    tensors.extend([0x00, 0x3c, 0x00, 0xc0]); // 1 and -2
    tensors.extend([0x80, 0x3f, 0x00, 0xc0]); // 1 and -2
    tensors.extend((-7i64).to_le_bytes());
    file(header, &tensors)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn every_dtype_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (set, metadata) = open(&write(folder.path(), "model.safetensors", &good())).unwrap();
    let names: Vec<&str> = set.names().collect();
    assert_eq!(names, ["a", "bf16", "f16", "i64"]);
    assert_eq!(metadata["format"], "pt");
    assert_eq!(set.shape("a"), Some(&[2, 3][..]));
    assert_eq!(set.dtype("f16"), Some(DType::F16));
    assert_eq!(set.floats("a").unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(set.floats("f16").unwrap(), [1.0, -2.0]);
    assert_eq!(set.floats("bf16").unwrap(), [1.0, -2.0]);
    assert_eq!(set.integers("i64").unwrap(), [-7]);
    assert_eq!(set.floats("i64"), None, "integers are not floats");
    assert_eq!(set.floats("missing"), None);
}

fn problem(header: &str, tensors: usize) -> String {
    let error = parse(&file(header, &vec![0; tensors])).expect_err("an invalid header");
    error.to_string()
}

/// Dtypes that the format has and we do not read, or that it may get.
#[test]
fn other_dtypes_are_not_supported_rather_than_broken() {
    for (dtype, shape, bytes) in [
        ("F8_E4M3", "[2,2]", 4),
        ("F8_E5M2", "[4]", 4),
        ("F8_E8M0", "[4]", 4),
        ("F6_E2M3", "[4]", 3),
        ("F4", "[8]", 4),
        ("C64", "[1]", 8),
        ("F8_NEW", "[4]", 4),
    ] {
        let header = format!(
            r#"{{"__metadata__":{{"format":"pt"}},"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{bytes}]}}}}"#
        );
        let error = parse(&file(&header, &vec![0; bytes])).unwrap_err();
        assert!(matches!(error, ParseError::Unsupported(_)), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "tensor a is {dtype}, which is not supported; supported are F64, F32, F16, BF16 and integers"
            )
        );
    }
    // Not the name of a dtype, and a header that is wrong beside it.
    for header in [
        r#"{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}}"#,
    ] {
        let error = parse(&file(header, &[0; 4])).unwrap_err();
        assert!(matches!(error, ParseError::Broken(_)), "{error}");
    }
}

#[test]
fn a_file_of_f8_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}"#;
    let path = write(folder.path(), "model.safetensors", &file(header, &[0; 4]));
    let error = open(&path).unwrap_err();
    assert!(matches!(error, FileError::Unsupported { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    assert!(!text.contains("again"), "{text}");
}

#[test]
fn a_directory_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::create_dir(&path).unwrap();
    for error in [open(&path).unwrap_err(), open_sharded(&path).unwrap_err()] {
        assert!(matches!(error, FileError::Io { .. }), "{error}");
        let text = "this is a directory, and a file is needed here; put the file in its place";
        assert_eq!(error.to_string(), format!("{}: {text}", path.display()));
    }
}

#[test]
fn invalid_headers_are_refused() {
    let tensor = |shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    for (header, tensors) in [
        (tensor("[2]", "[0,8]"), 7),
        (tensor("[2]", "[0,8]"), 9),
        (tensor("[3]", "[0,8]"), 8),
        (tensor("[2]", "[8,0]"), 8),
        (tensor("[2]", "[4,12]"), 12),
        (tensor("[18446744073709551615,2]", "[0,8]"), 8),
        (tensor("[4294967296,4294967296]", "[0,0]"), 0),
        (tensor("[-1]", "[0,4]"), 4),
        (tensor("[2]", "[0,18446744073709551615]"), 8),
        ("{".to_owned(), 0),
        ("[]".to_owned(), 0),
        (
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#
                .to_owned(),
            4,
        ),
        (
            r#"{"a":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}}"#.to_owned(),
            4,
        ),
    ] {
        let problem = problem(&header, tensors);
        assert!(!problem.contains('\n'), "{problem}");
    }
    // A header longer than the file, and than the limit.
    for length in [100, 1 << 27, u64::MAX] {
        let mut bytes = u64::to_le_bytes(length).to_vec();
        bytes.extend([b' '; 16]);
        parse(&bytes).expect_err("a header beyond the file");
    }
    for length in 0..8 {
        parse(&vec![0; length]).expect_err("no header at all");
    }
}

#[test]
fn truncated_files_are_refused_and_flipped_bytes_never_panic() {
    let good = good();
    for length in 0..good.len() {
        parse(&good[..length]).expect_err("a file that ends early");
    }
    for position in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[position] ^= flip;
            let _ = parse(&bytes);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
        let _ = parse(&file(&String::from_utf8_lossy(&bytes), &bytes));
    }
}

fn shard(name: &str, value: f32) -> Vec<u8> {
    let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
    file(&header, &value.to_le_bytes())
}

#[test]
fn shards_are_read_together() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "1.safetensors", &shard("a", 1.0));
    write(folder.path(), "2.safetensors", &shard("b", 2.0));
    let index = |map: &str| {
        let text = format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{map}}}"#);
        write(
            folder.path(),
            "model.safetensors.index.json",
            text.as_bytes(),
        )
    };
    let set = open_sharded(&index(r#"{"a":"1.safetensors","b":"2.safetensors"}"#)).unwrap();
    assert_eq!(set.floats("a").unwrap(), [1.0]);
    assert_eq!(set.floats("b").unwrap(), [2.0]);
    for (map, message) in [
        (r#"{"a":"../1.safetensors"}"#, "not a file name"),
        (r#"{"a":"/etc/passwd"}"#, "not a file name"),
        (r#"{"a":""}"#, "not a file name"),
        (r#"{"a":7}"#, "not a file name"),
        (
            r#"{"c":"1.safetensors"}"#,
            "tensor c is in it, and it is not",
        ),
        (r#"[]"#, "no weight_map"),
    ] {
        let error = open_sharded(&index(map)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    let error = open_sharded(&index(r#"{"a":"3.safetensors"}"#)).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }), "{error}");
    write(folder.path(), "2.safetensors", &shard("a", 2.0));
    let map = r#"{"a":"1.safetensors","b":"2.safetensors"}"#;
    let error = open_sharded(&index(map)).unwrap_err();
    assert!(error.to_string().contains("it is not"), "{error}");
}
