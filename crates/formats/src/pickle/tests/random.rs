//! Randomly mutated files are either read or refused; none may panic.

use proptest::prelude::*;

use super::{FILES, bytes_of, check, legacy};

#[test]
fn a_file_truncated_anywhere_is_refused() {
    for file in FILES {
        let bytes = bytes_of(file);
        for length in 0..bytes.len() {
            // Only unused trailing data could be missing, and PyTorch writes none.
            assert!(check(&bytes[..length]).is_err(), "{file}, {length} bytes");
        }
    }
}

#[test]
fn a_file_with_any_byte_changed_is_read_or_refused() {
    for file in FILES {
        let mut bytes = bytes_of(file);
        for index in 0..bytes.len() {
            for change in [0x01, 0xff] {
                bytes[index] ^= change;
                let _ = check(&bytes);
                bytes[index] ^= change;
            }
        }
    }
}

/// Fragments of pickles.
const PARTS: [&[u8]; 32] = [
    b"(",
    b"}",
    b"]",
    b")",
    b"t",
    b"\x85",
    b"\x86",
    b"\x87",
    b"a",
    b"e",
    b"s",
    b"u",
    b"b",
    b"R",
    b"Q",
    b"N",
    b"K\x02",
    b"\x8a\x01\xff",
    b"U\x01a",
    b"U\x05model",
    b"q\0",
    b"h\0",
    b"q\x01",
    b"h\x01",
    b"\x94",
    b"ccollections\nOrderedDict\n",
    b"ctorch\nSize\n",
    b"ctorch\nfloat32\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    super::STORAGE,
    b"U\x01bctorch._utils\n_rebuild_tensor_v2\n(",
    b"K\0K\x02\x85K\x01\x85\x89}tR",
];

/// The opcodes of a dict of two tensors, with some inserted, replaced or removed.
fn opcodes() -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        prop::sample::select(&PARTS[..]),
        0..3u8,
    );
    prop::collection::vec(edit, 0..5).prop_map(|edits| {
        let mut parts: Vec<&[u8]> = vec![b"}", b"q\0", b"("];
        for name in [&b"U\x01a"[..], b"U\x01b"] {
            let tensor: [&[u8]; 11] = [
                name,
                b"ctorch._utils\n_rebuild_tensor_v2\n",
                b"q\x01",
                b"(",
                super::STORAGE,
                b"K\0",
                b"K\x02\x85",
                b"K\x01\x85",
                b"\x89}",
                b"t",
                b"R",
            ];
            parts.extend(tensor);
        }
        parts.push(b"u");
        for (index, part, edit) in edits {
            let index = index.index(parts.len());
            match edit {
                0 => parts.insert(index, part),
                1 => parts[index] = part,
                _ => {
                    parts.remove(index);
                }
            }
        }
        parts.concat()
    })
}

/// A PyTorch file with some bytes overwritten, and a range removed or duplicated elsewhere.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    let indices = prop::array::uniform3(any::<prop::sample::Index>());
    (prop::sample::select(&FILES[..]), changes, indices, 0..3u8).prop_map(
        |(file, changes, indices, edit)| {
            let mut bytes = bytes_of(file);
            for (index, byte) in changes {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            let mut indices = indices.map(|index| index.index(bytes.len()));
            indices[..2].sort_unstable();
            let part = bytes[indices[0]..indices[1]].to_vec();
            match edit {
                0 => drop(bytes.drain(indices[0]..indices[1])),
                1 => drop(bytes.splice(indices[2]..indices[2], part)),
                _ => (),
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = check(&bytes);
        let _ = check(&[b"PK\x03\x04", &bytes[..]].concat());
        let _ = check(&legacy(&bytes));
    }

    #[test]
    fn random_opcodes_are_read_or_refused(opcodes in opcodes()) {
        let _ = check(&legacy(&opcodes));
    }

    #[test]
    fn mutated_files_are_read_or_refused(bytes in mutated()) {
        let _ = check(&bytes);
    }
}
