//! Tests of PyTorch files, and their helpers. `reference/pickles.py` made the files.

mod archives;
mod files;
mod pickles;
mod random;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::parse;
use crate::{ParseError, TensorInfo};

/// Files written by PyTorch, good and hostile.
const FILES: [&str; 22] = [
    "expanded_older.bin",
    "expanded_zip.bin",
    "hostile_older.bin",
    "hostile_zip.bin",
    "kinds_older_2.bin",
    "kinds_older_4.bin",
    "kinds_older_5.bin",
    "kinds_zip_2.bin",
    "kinds_zip_4.bin",
    "kinds_zip_5.bin",
    "model_older.bin",
    "model_zip.bin",
    "module_older.bin",
    "module_zip.bin",
    "nothing_older.bin",
    "nothing_zip.bin",
    "parameters_older.bin",
    "parameters_zip.bin",
    "state_dict_older.bin",
    "state_dict_zip.bin",
    "views_older.bin",
    "views_zip.bin",
];

fn path(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pickle");
    PathBuf::from(folder).join(file)
}

fn bytes_of(file: &str) -> Vec<u8> {
    std::fs::read(path(file)).unwrap()
}

/// Parses, and checks that every element of every tensor lies in its byte range, and the range in the file.
#[track_caller]
fn check(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    let tensors = parse(bytes)?;
    assert!(!tensors.is_empty());
    for (name, info) in &tensors {
        assert!(info.bytes.start <= info.bytes.end, "{name}: {info:?}");
        assert!(info.bytes.end <= bytes.len(), "{name}: {info:?}");
        let (_, size) = info.dtype.block();
        let elements: usize = info.shape.iter().product();
        let reach = match &info.strides {
            None => elements,
            Some(strides) => {
                assert_eq!(strides.len(), info.shape.len(), "{name}: {info:?}");
                assert!(elements > 0 && elements <= bytes.len(), "{name}: {info:?}");
                let axes = info.shape.iter().zip(strides);
                1 + axes
                    .map(|(size, stride)| (size - 1) * stride)
                    .sum::<usize>()
            }
        };
        assert_eq!(reach * size, info.bytes.len(), "{name}: {info:?}");
    }
    Ok(tensors)
}

/// Asserts that a file is refused with a message that contains this one.
#[track_caller]
fn refused(bytes: &[u8], message: &str) {
    let problem = check(bytes).unwrap_err().to_string();
    assert!(problem.contains(message), "{problem}");
    assert!(problem.len() < 1000, "{problem}");
}

/// Asserts that a file is refused with such a message, as one that may be valid.
#[track_caller]
fn unsupported(bytes: &[u8], message: &str) {
    refused(bytes, message);
    let error = check(bytes).unwrap_err();
    assert!(matches!(error, ParseError::Unsupported(_)), "{error}");
}

/// A pickle of protocol 2 with these opcodes.
fn pickle(opcodes: &[u8]) -> Vec<u8> {
    [b"\x80\x02", opcodes, b"."].concat()
}

/// A legacy file with one storage `k` of four f32.
fn legacy(object: &[u8]) -> Vec<u8> {
    let storage = [&4u64.to_le_bytes()[..], &[0; 16]].concat();
    [bare(object, b"U\x01ka"), storage].concat()
}

/// The pickles of a legacy file: its object, and the items of its list of storages.
fn bare(object: &[u8], keys: &[u8]) -> Vec<u8> {
    let parts = [
        pickle(b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"),
        pickle(b"M\xe9\x03"),
        pickle(b"}"),
        pickle(object),
        pickle(&[b"]", keys].concat()),
    ];
    parts.concat()
}

/// The opcodes of a dict with one tensor `name` of a storage of four f32.
fn tensor(offset: &[u8], sizes: &[u8], strides: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 6] = [
        b"}U\x04namectorch._utils\n_rebuild_tensor_v2\n(",
        STORAGE,
        offset,
        sizes,
        strides,
        b"\x89}tRs",
    ];
    parts.concat()
}

/// The opcodes that push the storage `k`.
const STORAGE: &[u8] = b"(U\x07storagectorch\nFloatStorage\nU\x01kU\x03cpuK\x04tQ";
