//! Handmade zip archives: zip64, and wrong headers.

use super::{check, pickle, refused, tensor, unsupported};

/// A test archive, and its defects.
#[derive(Clone)]
struct Zip {
    entries: Vec<(&'static str, Vec<u8>)>,
    method: u16,
    flags: u16,
    /// Added to the values in the central directory and the end record.
    size_error: u32,
    offset_error: u32,
    entries_error: u16,
    directory_error: u32,
    /// Whether to write zip64, as archives of more than 4 GiB are.
    zip64: bool,
    comment: &'static [u8],
}

impl Zip {
    fn good() -> Self {
        let object = pickle(&tensor(b"K\0", b"K\x04\x85", b"K\x01\x85"));
        Self {
            entries: vec![
                ("m/data.pkl", object),
                ("m/byteorder", b"little".to_vec()),
                ("m/data/k", vec![7; 16]),
            ],
            method: 0,
            flags: 0,
            size_error: 0,
            offset_error: 0,
            entries_error: 0,
            directory_error: 0,
            zip64: false,
            comment: b"",
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut directory = Vec::new();
        for (name, content) in &self.entries {
            let offset = (bytes.len() as u32).wrapping_add(self.offset_error);
            bytes.extend(b"PK\x03\x04");
            bytes.extend([0; 22]);
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(3u16.to_le_bytes());
            bytes.extend(name.bytes());
            bytes.extend(b"...");
            bytes.extend(content);
            let size = (content.len() as u32).wrapping_add(self.size_error);
            self.write_header(&mut directory, name, size, offset);
        }
        let start = (bytes.len() as u32).wrapping_add(self.directory_error);
        let size = directory.len() as u32;
        bytes.extend(directory);
        let count = (self.entries.len() as u16).wrapping_add(self.entries_error);
        if self.zip64 {
            let index = bytes.len() as u64;
            bytes.extend(b"PK\x06\x06");
            bytes.extend([0; 20]);
            for number in [0, count.into(), size.into(), u64::from(start)] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(b"PK\x06\x07\0\0\0\0");
            bytes.extend(index.to_le_bytes());
            bytes.extend([1, 0, 0, 0]);
        }
        bytes.extend(b"PK\x05\x06\0\0\0\0\0\0");
        let (count, size, start) = if self.zip64 {
            (u16::MAX, u32::MAX, u32::MAX)
        } else {
            (count, size, start)
        };
        bytes.extend(count.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend((self.comment.len() as u16).to_le_bytes());
        bytes.extend(self.comment);
        bytes
    }

    fn write_header(&self, directory: &mut Vec<u8>, name: &str, size: u32, offset: u32) {
        let mut extra = Vec::new();
        if self.zip64 {
            // An unrelated extra field comes first.
            extra.extend(b"\x63\x00\x02\x00??\x01\x00\x18\x00");
            for number in [size, size, offset] {
                extra.extend(u64::from(number).to_le_bytes());
            }
        }
        let narrow = |number: u32| if self.zip64 { u32::MAX } else { number };
        directory.extend(b"PK\x01\x02\0\0\0\0");
        directory.extend(self.flags.to_le_bytes());
        directory.extend(self.method.to_le_bytes());
        directory.extend([0; 8]);
        directory.extend(narrow(size).to_le_bytes());
        directory.extend(narrow(size).to_le_bytes());
        directory.extend((name.len() as u16).to_le_bytes());
        directory.extend((extra.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend(narrow(offset).to_le_bytes());
        directory.extend(name.bytes());
        directory.extend(extra);
    }
}

#[test]
fn archives_with_and_without_zip64_are_read() {
    for zip64 in [false, true] {
        for comment in [&b""[..], b"a comment", &[b'.'; 0xffff]] {
            let zip = Zip {
                zip64,
                comment,
                ..Zip::good()
            };
            let bytes = zip.to_bytes();
            let tensors = check(&bytes).unwrap();
            assert_eq!(bytes[tensors["name"].bytes.clone()], [7; 16]);
        }
    }
}

#[test]
fn archives_with_wrong_headers_are_refused() {
    let good = Zip::good();
    for zip64 in [false, true] {
        let good = Zip {
            zip64,
            ..good.clone()
        };
        let compressed = Zip {
            method: 8,
            ..good.clone()
        };
        unsupported(
            &compressed.to_bytes(),
            "its entry m/byteorder: it is compressed",
        );
        let encrypted = Zip {
            flags: 1,
            ..good.clone()
        };
        unsupported(
            &encrypted.to_bytes(),
            "its entry m/byteorder: it is encrypted",
        );
        for error in [1, 1 << 20, u32::MAX - 1] {
            let offset = Zip {
                offset_error: error,
                ..good.clone()
            };
            refused(&offset.to_bytes(), "its entry m/byteorder: ");
            let directory = Zip {
                directory_error: error,
                ..good.clone()
            };
            check(&directory.to_bytes()).unwrap_err();
        }
        for error in [1 << 20, u32::MAX - 100] {
            let size = Zip {
                size_error: error,
                ..good.clone()
            };
            refused(&size.to_bytes(), "its entry m/byteorder: it ends where");
        }
        for error in [1, u16::MAX] {
            let count = Zip {
                entries_error: error,
                ..good.clone()
            };
            refused(
                &count.to_bytes(),
                "its directory has 3 entries and should have",
            );
        }
    }
}

#[test]
fn entries_must_be_those_of_pytorch() {
    let with = |index: usize, name: &'static str, content: &[u8]| {
        let mut zip = Zip::good();
        zip.entries[index] = (name, content.to_vec());
        zip.to_bytes()
    };
    unsupported(&with(1, "m/byteorder", b"big"), "its byte order is big");
    refused(
        &with(1, "m/data/k", b""),
        "its entry m/data/k is duplicated",
    );
    refused(&with(2, "m/data/j", &[0; 16]), "its storage k is missing");
    refused(&with(2, "n/data/k", &[0; 16]), "its storage k is missing");
    refused(
        &with(2, "m/data/k", &[0; 15]),
        "its storage has 15 bytes, which are not 4 elements",
    );
    refused(&with(0, "m/other.pkl", b""), "without a data.pkl");
    refused(&with(0, "m/data.pkl", b""), "it ends where 1 more bytes");
    refused(b"PK\x03\x04", "whose end is missing");
}
