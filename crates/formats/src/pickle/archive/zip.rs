//! Zip archives of uncompressed entries: the byte range of each entry.
//!
//! ```text
//! local header, bytes of entry │ … │ central directory: a header per entry │ (zip64 end, locator) │ end
//!       ^─────────────────────────────────────── offset ──┘ ^───────────────── offset ────────────────┘
//! ```
//!
//! Values that overflow are all ones, with the real ones in an extra field or in the zip64 end record.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ParseError;
use crate::cursor::Cursor;
use crate::error_text::excerpt;

pub(in crate::pickle) const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";
const DIRECTORY_HEADER: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const ZIP64_END: [u8; 4] = *b"PK\x06\x06";
const ZIP64_LOCATOR: [u8; 4] = *b"PK\x06\x07";

const END_SIZE: usize = 22;
const LOCATOR_SIZE: usize = 20;
const MAX_COMMENT: usize = u16::MAX as usize;

/// The id of the zip64 extra field.
const ZIP64_FIELD: u16 = 1;
/// The flags of encryption: of an entry, strong encryption, of the directory.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;

/// The entries of an archive.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    /// The offset of the central directory; entries lie before it.
    directory: usize,
    /// By name, without the folder.
    records: BTreeMap<&'a [u8], DirectoryEntry<'a>>,
}

/// A header of the central directory, validated when the entry is looked up.
#[derive(Clone, Copy, Debug)]
struct DirectoryEntry<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    compressed: u64,
    size: u64,
    offset: u64,
}

/// The location of the central directory.
struct CentralDirectory {
    bytes: Range<usize>,
    entries: u64,
}

/// The end-of-central-directory record.
struct EndRecord {
    entries: u64,
    size: u64,
    offset: u64,
    /// The offset of the record itself.
    position: usize,
}

impl<'a> Archive<'a> {
    /// Reads the central directory. Only entries in the folder of the first entry matter.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let directory = directory(bytes)?;
        let mut cursor = Cursor::at(&bytes[..directory.bytes.end], directory.bytes.start);
        let mut records = BTreeMap::new();
        let mut folder: Option<&[u8]> = None;
        let mut entries = 0;
        while cursor.position() < directory.bytes.end {
            let record = record(&mut cursor)?;
            entries += 1;
            let folder = *folder.get_or_insert_with(|| folder_of(record.name));
            let Some(name) = record.name.strip_prefix(folder) else {
                continue;
            };
            // Zip readers disagree on which duplicate wins.
            if records.insert(name, record).is_some() {
                return Err(format!("its entry {} is duplicated", record.excerpt()));
            }
        }
        if entries != directory.entries {
            return Err(format!(
                "its directory has {entries} entries and should have {}",
                directory.entries
            ));
        }
        Ok(Self {
            bytes,
            directory: directory.bytes.start,
            records,
        })
    }

    /// The byte range of an entry, if it exists.
    pub(super) fn find(&self, name: &str) -> Result<Option<Range<usize>>, ParseError> {
        let Some(record) = self.records.get(name.as_bytes()) else {
            return Ok(None);
        };
        let range = self.data_range(record);
        let range = range.map_err(|error| error.of(&format!("its entry {}", record.excerpt())))?;
        Ok(Some(range))
    }

    fn data_range(&self, record: &DirectoryEntry<'_>) -> Result<Range<usize>, ParseError> {
        if record.flags & ENCRYPTED != 0 {
            return Err(ParseError::unsupported(
                "it is encrypted, which is not supported",
            ));
        }
        if record.method != 0 {
            return Err(ParseError::unsupported(
                "it is compressed, which is not supported; PyTorch stores entries uncompressed",
            ));
        }
        if record.compressed != record.size {
            return Err("its two sizes differ, though it is not compressed".into());
        }
        let start = usize::try_from(record.offset).unwrap_or(usize::MAX);
        let mut cursor = Cursor::at(&self.bytes[..self.directory], start);
        expect(&mut cursor, LOCAL_HEADER)?;
        // Version, flags, method, time, checksum and sizes: the central directory has them, and writers omit them here.
        cursor.take(22)?;
        let name_length = cursor.u16()?;
        let extra_length = cursor.u16()?;
        if cursor.take(name_length.into())? != record.name {
            return Err("its name differs from the directory's".into());
        }
        // PyTorch pads the extra field to align the data to 64 bytes.
        cursor.take(extra_length.into())?;
        let start = cursor.position();
        cursor.take_long(record.size)?;
        Ok(start..cursor.position())
    }
}

impl DirectoryEntry<'_> {
    fn excerpt(&self) -> String {
        excerpt(&String::from_utf8_lossy(self.name))
    }
}

/// The first folder of a name, with its slash.
fn folder_of(name: &[u8]) -> &[u8] {
    let slash = name.iter().position(|byte| *byte == b'/');
    slash.map_or(&[], |slash| &name[..=slash])
}

/// Reads the next header of the central directory.
fn record<'a>(cursor: &mut Cursor<'a>) -> Result<DirectoryEntry<'a>, String> {
    expect(cursor, DIRECTORY_HEADER)?;
    // Versions made by and needed.
    cursor.take(4)?;
    let flags = cursor.u16()?;
    let method = cursor.u16()?;
    // Time and CRC-32. Checking it would read every storage, and is no defence against an attacker, who writes both.
    cursor.take(8)?;
    let compressed = cursor.u32()?;
    let size = cursor.u32()?;
    let name_length = cursor.u16()?;
    let extra_length = cursor.u16()?;
    let comment_length = cursor.u16()?;
    // Disk number and attributes.
    cursor.take(8)?;
    let offset = cursor.u32()?;
    let name = cursor.take(name_length.into())?;
    let mut zip64 = zip64_field(cursor.take(extra_length.into())?)?;
    cursor.take(comment_length.into())?;
    Ok(DirectoryEntry {
        name,
        flags,
        method,
        // In the order of the zip64 field, which is not that of the header.
        size: or_zip64(size, &mut zip64)?,
        compressed: or_zip64(compressed, &mut zip64)?,
        offset: or_zip64(offset, &mut zip64)?,
    })
}

/// The zip64 field of the extra fields; empty if there is none.
fn zip64_field(extra: &[u8]) -> Result<Cursor<'_>, String> {
    let mut cursor = Cursor::at(extra, 0);
    // A remainder shorter than a field header is padding.
    while cursor.position() + 4 <= extra.len() {
        let name = cursor.u16()?;
        let length = cursor.u16()?;
        let field = cursor.take(length.into())?;
        if name == ZIP64_FIELD {
            return Ok(Cursor::at(field, 0));
        }
    }
    Ok(Cursor::at(&[], 0))
}

/// A value, or its zip64 replacement if it overflowed.
fn or_zip64(number: u32, zip64: &mut Cursor<'_>) -> Result<u64, String> {
    if number == u32::MAX {
        zip64.u64()
    } else {
        Ok(number.into())
    }
}

/// Finds the central directory from the end of the file.
fn directory(bytes: &[u8]) -> Result<CentralDirectory, String> {
    let position = end(bytes).ok_or("it is a zip archive whose end is missing")?;
    let mut cursor = Cursor::at(bytes, position);
    expect(&mut cursor, END)?;
    // Disk numbers, and the entries on this disk.
    cursor.take(6)?;
    let entries = cursor.u16()?;
    let size = cursor.u32()?;
    let offset = cursor.u32()?;
    let end = if entries == u16::MAX || size == u32::MAX || offset == u32::MAX {
        zip64_end(bytes, position)?
    } else {
        EndRecord {
            entries: entries.into(),
            size: size.into(),
            offset: offset.into(),
            position,
        }
    };
    let start = usize::try_from(end.offset).ok();
    let size = usize::try_from(end.size).ok();
    let stop = start
        .zip(size)
        .and_then(|(start, size)| start.checked_add(size));
    match (start, stop) {
        (Some(start), Some(stop)) if stop <= end.position => Ok(CentralDirectory {
            bytes: start..stop,
            entries: end.entries,
        }),
        _ => Err("it is a zip archive whose directory reaches beyond its end".to_owned()),
    }
}

/// The offset of the end record, which ends with a comment of up to 64 KiB.
fn end(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_SIZE)?;
    let first = last.saturating_sub(MAX_COMMENT);
    (first..=last).rev().find(|offset| {
        let record = &bytes[*offset..];
        let comment = u16::from_le_bytes([record[20], record[21]]);
        record.starts_with(&END) && END_SIZE + usize::from(comment) == record.len()
    })
}

/// Reads the zip64 end record.
fn zip64_end(bytes: &[u8], end: usize) -> Result<EndRecord, String> {
    let locator = end.checked_sub(LOCATOR_SIZE);
    let locator = locator.ok_or("it is a zip archive whose zip64 end is missing")?;
    let mut cursor = Cursor::at(bytes, locator);
    expect(&mut cursor, ZIP64_LOCATOR)?;
    cursor.take(4)?;
    let position = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
    let mut cursor = Cursor::at(&bytes[..locator], position);
    expect(&mut cursor, ZIP64_END)?;
    // Its length, versions, disk numbers, and the entries on this disk.
    cursor.take(28)?;
    Ok(EndRecord {
        entries: cursor.u64()?,
        size: cursor.u64()?,
        offset: cursor.u64()?,
        position,
    })
}

fn expect(cursor: &mut Cursor<'_>, signature: [u8; 4]) -> Result<(), String> {
    let offset = cursor.position();
    if cursor.take(4)? == signature {
        Ok(())
    } else {
        Err(format!(
            "byte {offset} is not the start of a header of a zip archive"
        ))
    }
}
