//! Tests of files of PyTorch's. Here is what they share; `reference/pickles.py` made the files.

mod archives;
mod files;
mod pickles;
mod random;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::parse;
use crate::Entry;

/// The files that PyTorch wrote, good and hostile.
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

/// Parses, and checks that what was found can be read: every number of every tensor lies in its bytes, and these in the file.
#[track_caller]
fn check(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
    let entries = parse(bytes)?;
    assert!(!entries.is_empty());
    for (name, entry) in &entries {
        assert!(entry.bytes.start <= entry.bytes.end, "{name}: {entry:?}");
        assert!(entry.bytes.end <= bytes.len(), "{name}: {entry:?}");
        let (_, size) = entry.kind.block();
        let numbers: usize = entry.shape.iter().product();
        let reach = match &entry.strides {
            None => numbers,
            Some(strides) => {
                assert_eq!(strides.len(), entry.shape.len(), "{name}: {entry:?}");
                assert!(numbers > 0 && numbers <= bytes.len(), "{name}: {entry:?}");
                let axes = entry.shape.iter().zip(strides);
                1 + axes
                    .map(|(size, stride)| (size - 1) * stride)
                    .sum::<usize>()
            }
        };
        assert_eq!(reach * size, entry.bytes.len(), "{name}: {entry:?}");
    }
    Ok(entries)
}

/// That a file is refused with words that contain these.
#[track_caller]
fn refused(bytes: &[u8], words: &str) {
    let problem = check(bytes).unwrap_err();
    assert!(problem.contains(words), "{problem}");
    assert!(problem.len() < 1000, "{problem}");
}

/// A pickle of version 2 of these operations.
fn pickle(operations: &[u8]) -> Vec<u8> {
    [b"\x80\x02", operations, b"."].concat()
}

/// A file as before PyTorch 1.6, with one storage `k` of four f32.
fn older(object: &[u8]) -> Vec<u8> {
    let storage = [&4u64.to_le_bytes()[..], &[0; 16]].concat();
    [bare(object, b"U\x01ka"), storage].concat()
}

/// The pickles of such a file: its object, and what is added to the list of its storages.
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

/// The operations that build a tensor `name` of a storage of four f32, in a dictionary of nothing else.
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

/// The operations that push the storage `k`.
const STORAGE: &[u8] = b"(U\x07storagectorch\nFloatStorage\nU\x01kU\x03cpuK\x04tQ";
