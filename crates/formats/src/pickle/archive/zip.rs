//! Zip archives whose entries are stored as they are: where in the file each entry lies.
//!
//! ```text
//! local header, bytes of entry │ … │ directory: a header per entry │ (large end, locator) │ end
//!       ^──────────────────────────────── offset ──┘ ^────────────── offset ────────────────┘
//! ```
//!
//! Numbers that do not fit are all ones, and stand in an extra field or in the large end instead (zip64).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::cursor::Cursor;
use crate::shown::shown;

pub(in crate::pickle) const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";
const DIRECTORY_HEADER: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const LARGE_END: [u8; 4] = *b"PK\x06\x06";
const LARGE_LOCATOR: [u8; 4] = *b"PK\x06\x07";

const END_SIZE: usize = 22;
const LOCATOR_SIZE: usize = 20;
const LONGEST_COMMENT: usize = u16::MAX as usize;

/// The extra field that holds numbers of eight bytes.
const LARGE_FIELD: u16 = 1;
/// The flags of encryption: of an entry, of a strong kind, of the directory.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;

/// The entries of an archive's folder.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    /// Where the directory starts: entries lie before it.
    directory: usize,
    /// By the name that follows the folder's.
    records: BTreeMap<&'a [u8], Record<'a>>,
}

/// What the directory says of an entry. It is checked when the entry is asked for.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    compressed: u64,
    size: u64,
    offset: u64,
}

/// Where the directory lies.
struct Directory {
    bytes: Range<usize>,
    entries: u64,
}

/// What the end of an archive says of its directory.
struct End {
    entries: u64,
    size: u64,
    offset: u64,
    /// Where the end itself starts.
    place: usize,
}

impl<'a> Archive<'a> {
    /// Reads the directory. All entries that matter are in one folder, that of the first entry.
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
            // Readers of archives differ in which of two they take.
            if records.insert(name, record).is_some() {
                return Err(format!(
                    "its entry {} is there a second time",
                    record.shown()
                ));
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

    /// Where the bytes of an entry lie, if it is there.
    pub(super) fn find(&self, name: &str) -> Result<Option<Range<usize>>, String> {
        let Some(record) = self.records.get(name.as_bytes()) else {
            return Ok(None);
        };
        let place = self.place(record);
        let place = place.map_err(|problem| format!("its entry {}: {problem}", record.shown()))?;
        Ok(Some(place))
    }

    fn place(&self, record: &Record<'_>) -> Result<Range<usize>, String> {
        if record.flags & ENCRYPTED != 0 {
            return Err("it is encrypted".to_owned());
        }
        if record.method != 0 || record.compressed != record.size {
            return Err("it is compressed; PyTorch stores entries as they are".to_owned());
        }
        let start = usize::try_from(record.offset).unwrap_or(usize::MAX);
        let mut cursor = Cursor::at(&self.bytes[..self.directory], start);
        expect(&mut cursor, LOCAL_HEADER)?;
        // Version, flags, method, time, checksum and sizes: the directory said them, and writers leave them out here.
        cursor.take(22)?;
        let name_length = cursor.u16()?;
        let extra_length = cursor.u16()?;
        if cursor.take(name_length.into())? != record.name {
            return Err("its name differs from the directory's".to_owned());
        }
        // PyTorch fills the extra field so that the numbers start at a multiple of 64.
        cursor.take(extra_length.into())?;
        let start = cursor.position();
        cursor.take_long(record.size)?;
        Ok(start..cursor.position())
    }
}

impl Record<'_> {
    fn shown(&self) -> String {
        shown(&String::from_utf8_lossy(self.name))
    }
}

/// The name's first folder, with its slash.
fn folder_of(name: &[u8]) -> &[u8] {
    let slash = name.iter().position(|byte| *byte == b'/');
    slash.map_or(&[], |slash| &name[..=slash])
}

/// The next header of the directory.
fn record<'a>(cursor: &mut Cursor<'a>) -> Result<Record<'a>, String> {
    expect(cursor, DIRECTORY_HEADER)?;
    // By whom and for whom it was written.
    cursor.take(4)?;
    let flags = cursor.u16()?;
    let method = cursor.u16()?;
    // Time and checksum. The sum of a storage would cost reading all of it, and is no defence against who writes both.
    cursor.take(8)?;
    let compressed = cursor.u32()?;
    let size = cursor.u32()?;
    let name_length = cursor.u16()?;
    let extra_length = cursor.u16()?;
    let comment_length = cursor.u16()?;
    // Disk and attributes.
    cursor.take(8)?;
    let offset = cursor.u32()?;
    let name = cursor.take(name_length.into())?;
    let mut large = large_field(cursor.take(extra_length.into())?)?;
    cursor.take(comment_length.into())?;
    Ok(Record {
        name,
        flags,
        method,
        // The order of the extra field is not that of the header.
        size: widened(size, &mut large)?,
        compressed: widened(compressed, &mut large)?,
        offset: widened(offset, &mut large)?,
    })
}

/// The numbers of eight bytes that an extra field holds; nothing where there is none.
fn large_field(extra: &[u8]) -> Result<Cursor<'_>, String> {
    let mut cursor = Cursor::at(extra, 0);
    // Less than a field's header at the end is filling.
    while cursor.position() + 4 <= extra.len() {
        let name = cursor.u16()?;
        let length = cursor.u16()?;
        let field = cursor.take(length.into())?;
        if name == LARGE_FIELD {
            return Ok(Cursor::at(field, 0));
        }
    }
    Ok(Cursor::at(&[], 0))
}

/// A number, or the one that stands in its place.
fn widened(number: u32, large: &mut Cursor<'_>) -> Result<u64, String> {
    if number == u32::MAX {
        large.u64()
    } else {
        Ok(number.into())
    }
}

/// Finds the directory from the end of the file.
fn directory(bytes: &[u8]) -> Result<Directory, String> {
    let place = end(bytes).ok_or("it is a zip archive whose end is missing")?;
    let mut cursor = Cursor::at(bytes, place);
    expect(&mut cursor, END)?;
    // The numbers of disks, and the entries on this one.
    cursor.take(6)?;
    let entries = cursor.u16()?;
    let size = cursor.u32()?;
    let offset = cursor.u32()?;
    let end = if entries == u16::MAX || size == u32::MAX || offset == u32::MAX {
        large_end(bytes, place)?
    } else {
        End {
            entries: entries.into(),
            size: size.into(),
            offset: offset.into(),
            place,
        }
    };
    let start = usize::try_from(end.offset).ok();
    let size = usize::try_from(end.size).ok();
    let stop = start
        .zip(size)
        .and_then(|(start, size)| start.checked_add(size));
    match (start, stop) {
        (Some(start), Some(stop)) if stop <= end.place => Ok(Directory {
            bytes: start..stop,
            entries: end.entries,
        }),
        _ => Err("it is a zip archive whose directory reaches beyond its end".to_owned()),
    }
}

/// Where the end's record starts: it has a comment of up to 64 KiB, which ends with the file.
fn end(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_SIZE)?;
    let first = last.saturating_sub(LONGEST_COMMENT);
    (first..=last).rev().find(|place| {
        let record = &bytes[*place..];
        let comment = u16::from_le_bytes([record[20], record[21]]);
        record.starts_with(&END) && END_SIZE + usize::from(comment) == record.len()
    })
}

/// The end whose numbers have eight bytes.
fn large_end(bytes: &[u8], end: usize) -> Result<End, String> {
    let locator = end.checked_sub(LOCATOR_SIZE);
    let locator = locator.ok_or("it is a zip archive whose large end is missing")?;
    let mut cursor = Cursor::at(bytes, locator);
    expect(&mut cursor, LARGE_LOCATOR)?;
    cursor.take(4)?;
    let place = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
    let mut cursor = Cursor::at(&bytes[..locator], place);
    expect(&mut cursor, LARGE_END)?;
    // Its length, the versions, the numbers of disks, and the entries on this one.
    cursor.take(28)?;
    Ok(End {
        entries: cursor.u64()?,
        size: cursor.u64()?,
        offset: cursor.u64()?,
        place,
    })
}

fn expect(cursor: &mut Cursor<'_>, signature: [u8; 4]) -> Result<(), String> {
    let place = cursor.position();
    if cursor.take(4)? == signature {
        Ok(())
    } else {
        Err(format!(
            "byte {place} is not the start of a header of a zip archive"
        ))
    }
}
