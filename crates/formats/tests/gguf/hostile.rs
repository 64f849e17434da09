//! Broken and hostile GGUF files: each is refused in one line, or read without harm.

use attentive_formats::{ParseError, gguf};
use proptest::prelude::*;

const FIXTURES: [&str; 2] = ["kinds.gguf", "metadata.gguf"];

/// A file with these keys and tensors, and `data` bytes of tensor data.
fn file(keys: &[Vec<u8>], tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut file = preamble(tensors.len() as u64, keys.len() as u64);
    file.extend(keys.concat());
    file.extend(tensors.concat());
    file.resize(file.len().next_multiple_of(32) + data, 0);
    file
}

fn preamble(tensors: u64, keys: u64) -> Vec<u8> {
    let counts = [tensors.to_le_bytes(), keys.to_le_bytes()].concat();
    [b"GGUF".to_vec(), vec![3, 0, 0, 0], counts].concat()
}

fn string(string: &[u8]) -> Vec<u8> {
    [&(string.len() as u64).to_le_bytes(), string].concat()
}

fn key(name: &str, type_id: u32, value: &[u8]) -> Vec<u8> {
    [&string(name.as_bytes()), &type_id.to_le_bytes()[..], value].concat()
}

/// An array of this type that declares `count` values.
fn array(type_id: u32, count: u64, values: &[u8]) -> Vec<u8> {
    [&type_id.to_le_bytes()[..], &count.to_le_bytes(), values].concat()
}

fn tensor(name: &str, sizes: &[u64], dtype: u32, offset: u64) -> Vec<u8> {
    let axes = sizes.len() as u32;
    let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    let end = [&dtype.to_le_bytes()[..], &offset.to_le_bytes()].concat();
    [
        string(name.as_bytes()),
        axes.to_le_bytes().into(),
        sizes,
        end,
    ]
    .concat()
}

/// The file is refused, with a message that contains this one.
fn check(file: &[u8], message: &str) {
    let problem = gguf::parse(file).unwrap_err().to_string();
    assert!(problem.contains(message), "{problem:?} lacks {message:?}");
    assert_one_line(&problem);
}

/// The file is refused with such a message, as one that may be valid.
fn check_unsupported(file: &[u8], message: &str) {
    check(file, message);
    let error = gguf::parse(file).unwrap_err();
    assert!(matches!(error, ParseError::Unsupported(_)), "{error}");
}

/// The file is refused in one line, or every tensor lies in it.
fn check_harmless(file: &[u8]) {
    match gguf::parse(file) {
        Err(problem) => assert_one_line(&problem.to_string()),
        Ok(read) => {
            for tensor in read.tensors.values() {
                let data: usize = tensor.shape.iter().product();
                let bytes = &file[tensor.bytes.clone()];
                let floats = tensor.dtype.floats(bytes).map(|floats| floats.len());
                let integers = tensor.dtype.integers(bytes).map(|integers| integers.len());
                assert_eq!(floats.or(integers), Some(data));
            }
        }
    }
}

fn assert_one_line(problem: &str) {
    let plain = !problem.is_empty() && !problem.chars().any(char::is_control);
    assert!(plain && problem.chars().count() < 400, "{problem:?}");
}

#[test]
fn magics() {
    check(b"", "it ends where 4 more bytes should follow byte 0");
    check(b"GGML\x03\0\0\0", "does not start with GGUF");
    check(b"GGUF\0\0\0\0", "version 0");
    for version in [1, 4] {
        let version_here = [b"GGUF", &[version, 0, 0, 0][..]].concat();
        check_unsupported(&version_here, &format!("version {version}"));
    }
    check_unsupported(b"GGUF\0\0\0\x03", "big endian");
}

#[test]
fn truncated_at_every_byte() {
    for name in FIXTURES {
        let whole = super::bytes(name);
        let tensors = gguf::parse(&whole).unwrap().tensors;
        let end = tensors
            .values()
            .map(|tensor| tensor.bytes.end)
            .max()
            .unwrap();
        for length in 0..end {
            let problem = gguf::parse(&whole[..length]).unwrap_err();
            assert_one_line(&problem.to_string());
        }
        // Only padding follows the last element.
        gguf::parse(&whole[..end]).unwrap();
    }
}

#[test]
fn every_byte_flipped() {
    for name in FIXTURES {
        let mut file = super::bytes(name);
        for position in 0..file.len() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                file[position] ^= flip;
                check_harmless(&file);
                file[position] ^= flip;
            }
        }
    }
}

#[test]
fn absurd_counts() {
    for count in [3, 1 << 40, 1 << 60, u64::MAX] {
        check(&preamble(count, 0), &format!("declares {count} tensors"));
        check(
            &preamble(0, count),
            &format!("declares {count} metadata keys"),
        );
        let long = key("k", 8, &count.to_le_bytes());
        check(&[preamble(0, 1), long].concat(), "bytes of string");
        let long_name = count.to_le_bytes().to_vec();
        check(
            &[preamble(0, 1), long_name, vec![0; 2]].concat(),
            "too many",
        );
        for type_id in 0..13 {
            let long = key("k", 9, &array(type_id, count, &[]));
            check(&[preamble(0, 1), long].concat(), "k: byte 41 declares");
        }
    }
}

#[test]
fn bad_values() {
    let refused = |value: Vec<u8>, message: &str| check(&file(&[value], &[], 0), message);
    refused(key("k", 13, &[0; 8]), "k: its type is 13");
    refused(key("k", 9, &array(13, 0, &[])), "k: its array type is 13");
    refused(key("k", 7, &[2]), "k: the bool at byte 37 is 2");
    refused(key("k", 9, &array(7, 2, &[1, 9])), "the bool at byte");
    refused(
        key("k", 8, &string(b"\xff")),
        "k: the string at byte 45 is not UTF-8",
    );
    refused(
        [string(b"\xff"), vec![0; 8]].concat(),
        "metadata key 0: the string",
    );
    let twice = key("k", 0, &[1]);
    check(
        &file(&[twice.clone(), twice], &[], 0),
        "key k is duplicated",
    );
}

#[test]
fn deeply_nested_arrays() {
    let nested = |depth: usize| {
        let arrays = [array(9, 1, &[]).repeat(depth - 1), array(0, 1, &[1])].concat();
        file(&[key("k", 9, &arrays)], &[], 0)
    };
    gguf::parse(&nested(4)).unwrap();
    check_unsupported(&nested(5), "more than 4 deep");
    check(&nested(100_000), "more than 4 deep");
}

#[test]
fn alignments() {
    let aligned = |type_id, value: &[u8]| {
        let alignment = key("general.alignment", type_id, value);
        file(&[alignment], &[tensor("t", &[1], 0, 0)], 64)
    };
    for bad in [0u32, 3, u32::MAX] {
        check(
            &aligned(4, &bad.to_le_bytes()),
            "general.alignment is not a power of two",
        );
    }
    check_unsupported(
        &aligned(4, &48u32.to_le_bytes()),
        "general.alignment is not a power of two but 48, which is not supported",
    );
    check(
        &aligned(5, &(-32i32).to_le_bytes()),
        "an i32, not a non-negative integer",
    );
    check(
        &aligned(6, &32f32.to_le_bytes()),
        "an f32, not a non-negative integer",
    );
    check(
        &aligned(4, &(1u32 << 31).to_le_bytes()),
        "tensor t: 4 bytes from 2147483648 on",
    );
    check(&aligned(10, &(1u64 << 63).to_le_bytes()), "tensor t: ");
    gguf::parse(&aligned(4, &1u32.to_le_bytes())).unwrap();
    gguf::parse(&aligned(10, &64u64.to_le_bytes())).unwrap();
}

#[test]
fn bad_tensors() {
    let refused = |tensor: Vec<u8>, message: &str| check(&file(&[], &[tensor], 320), message);
    refused(tensor("t", &[1; 5], 0, 0), "tensor t: it has 5 dimensions");
    refused(tensor("t", &[1 << 40, 1 << 40], 0, 0), "multiply to more");
    refused(tensor("t", &[u64::MAX; 4], 0, 0), "multiply to more");
    refused(tensor("t", &[u64::MAX], 0, 0), "more than memory can hold");
    refused(tensor("t", &[81], 0, 0), "reach beyond");
    refused(
        tensor("t", &[48], 2, 0),
        "not a multiple of the block size of Q4_0",
    );
    refused(
        tensor("t", &[128, 2], 12, 0),
        "not a multiple of the block size of Q4_K",
    );
    refused(
        tensor("t", &[], 14, 0),
        "not a multiple of the block size of Q6_K",
    );
    refused(
        tensor("t", &[1], 0, 33),
        "offset 33 is not a multiple of the alignment 32",
    );
    refused(tensor("t", &[1], 0, 320), "reach beyond");
    refused(tensor("t", &[1], 0, 1 << 50), "reach beyond");
    refused(tensor("t", &[1], 0, u64::MAX - 31), "beyond the file");
    let unsupported =
        |tensor: Vec<u8>, message: &str| check_unsupported(&file(&[], &[tensor], 320), message);
    unsupported(
        tensor("t", &[32], 6, 0),
        "tensor t: its type 6 (Q5_0) is not supported; supported are F32",
    );
    unsupported(tensor("t", &[32], 4, 0), "its type 4 (unknown)");
    refused(
        tensor("t", &[32], 1 << 20, 0),
        "its type is 1048576, which no version of ggml has",
    );
    refused(
        tensor(&"\n".repeat(300), &[1; 5], 0, 0),
        "…: it has 5 dimensions",
    );
    let axes = [string(b"t"), u32::MAX.to_le_bytes().into(), vec![0; 12]].concat();
    refused(axes, "it has 4294967295 dimensions");
    let no_utf8 = [string(b"\xff"), vec![0; 16]].concat();
    refused(no_utf8, "tensor 0: the string at byte 32 is not UTF-8");
}

#[test]
fn duplicate_and_overlapping_tensors() {
    let pair = |first, second| file(&[], &[first, second], 320);
    let twice = pair(tensor("t", &[1], 0, 0), tensor("t", &[1], 0, 32));
    check(&twice, "tensor t: it is duplicated");
    let shared = pair(tensor("t", &[9], 0, 0), tensor("u", &[1], 0, 32));
    check(&shared, "tensors t and u overlap");
    // In any order, with a gap, and with an empty one.
    gguf::parse(&pair(tensor("t", &[8], 0, 96), tensor("u", &[8], 0, 0))).unwrap();
    gguf::parse(&pair(tensor("t", &[8], 0, 0), tensor("u", &[0, 7], 0, 0))).unwrap();
}

#[test]
fn metadata_without_tensors() {
    let bare = [preamble(0, 1), key("k", 0, &[1])].concat();
    let read = gguf::parse(&bare).unwrap();
    assert_eq!(read.metadata.integer("k"), Some(1));
    assert!(read.tensors.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_mutations(
        fixture in 0usize..2,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        moved in any::<prop::sample::Index>(),
        length in 0usize..64,
        change in 0..3,
    ) {
        let mut file = super::bytes(FIXTURES[fixture]);
        for (position, byte) in changes {
            let position = position.index(file.len());
            file[position] = byte;
        }
        let start = moved.index(file.len());
        let end = (start + length).min(file.len());
        match change {
            0 => drop(file.drain(start..end)),
            1 => drop(file.splice(start..start, vec![0xff; length])),
            _ => file.truncate(start),
        }
        check_harmless(&file);
    }

    #[test]
    fn random_bytes_after_the_preamble(
        bytes in prop::collection::vec(any::<u8>(), 0..300), tensors in 0u64..4, keys in 0u64..4,
    ) {
        check_harmless(&[preamble(tensors, keys), bytes].concat());
    }
}
