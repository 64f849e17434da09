//! The part of a GGUF file that says what its tensors are, and where.

use std::collections::BTreeMap;

use super::reader::Reader;
use crate::shown::shown;
use crate::{Entry, Kind};

/// The bytes of the smallest description: the length of no name, no sizes and their number, a kind, an offset.
pub(super) const SMALLEST: usize = 8 + 4 + 4 + 8;

/// ggml's tensors have no more axes.
const MOST_AXES: u32 = 4;

/// What a file says about a tensor.
struct Description<'a> {
    name: &'a str,
    kind: Kind,
    /// The slowest size first.
    shape: Vec<usize>,
    /// Where its numbers begin, counted from where all numbers begin.
    offset: u64,
}

/// Reads so many descriptions, and finds the tensors' bytes after them.
pub(super) fn read(
    reader: &mut Reader,
    count: usize,
    alignment: usize,
) -> Result<BTreeMap<String, Entry>, String> {
    let mut descriptions = Vec::with_capacity(count);
    for index in 0..count {
        let name = reader
            .text()
            .map_err(|problem| format!("tensor {index}: {problem}"))?;
        descriptions.push(describe(reader, name).map_err(|problem| of_tensor(name, &problem))?);
    }
    let start = reader.position().checked_next_multiple_of(alignment);
    let mut entries = BTreeMap::new();
    for description in descriptions {
        let name = description.name;
        let entry = place(description, start, alignment, reader.size())
            .map_err(|problem| of_tensor(name, &problem))?;
        if entries.insert(name.to_owned(), entry).is_some() {
            return Err(of_tensor(name, "it is there a second time"));
        }
    }
    check_apart(&entries)?;
    Ok(entries)
}

fn of_tensor(name: &str, problem: &str) -> String {
    format!("tensor {}: {problem}", shown(name))
}

fn describe<'a>(reader: &mut Reader<'a>, name: &'a str) -> Result<Description<'a>, String> {
    let axes = reader.number(u32::from_le_bytes)?;
    if axes > MOST_AXES {
        return Err(format!(
            "it has {axes} axes; at most {MOST_AXES} are allowed"
        ));
    }
    let mut shape = Vec::new();
    for _ in 0..axes {
        let size = reader.number(u64::from_le_bytes)?;
        let size = usize::try_from(size);
        shape.push(size.map_err(|_| "one of its sizes is more than memory can hold".to_owned())?);
    }
    // ggml writes the size of a row first, the fastest axis.
    shape.reverse();
    let number = reader.number(u32::from_le_bytes)?;
    let kind = kind(number).ok_or_else(|| unsupported(number))?;
    let offset = reader.number(u64::from_le_bytes)?;
    Ok(Description {
        name,
        kind,
        shape,
        offset,
    })
}

/// Where in a file of `size` bytes a tensor lies, when all numbers begin at `start`.
fn place(
    description: Description,
    start: Option<usize>,
    alignment: usize,
    size: usize,
) -> Result<Entry, String> {
    let Description {
        kind,
        shape,
        offset,
        ..
    } = description;
    let begin = usize::try_from(offset)
        .ok()
        .and_then(|offset| offset.checked_add(start?));
    let Some(begin) = begin else {
        return Err(format!(
            "its offset {offset} lies beyond the file's {size} bytes"
        ));
    };
    // The start is a multiple of the alignment itself.
    if begin % alignment != 0 {
        return Err(format!(
            "its offset {offset} is no multiple of the alignment {alignment}"
        ));
    }
    Entry::dense(kind, shape, begin, size)
}

/// Refuses tensors that share bytes: with them a small file could ask for any amount of memory.
fn check_apart(entries: &BTreeMap<String, Entry>) -> Result<(), String> {
    let mut filled: Vec<_> = entries
        .iter()
        .filter(|(_, entry)| !entry.bytes.is_empty())
        .collect();
    filled.sort_by_key(|(_, entry)| entry.bytes.start);
    for pair in filled.windows(2) {
        let [(before, first), (after, second)] = [pair[0], pair[1]];
        if second.bytes.start < first.bytes.end {
            let (before, after) = (shown(before), shown(after));
            return Err(format!(
                "tensors {before} and {after} lie in the same bytes"
            ));
        }
    }
    Ok(())
}

/// The kind that ggml gives this number, where it can be read.
fn kind(number: u32) -> Option<Kind> {
    Some(match number {
        0 => Kind::F32,
        1 => Kind::F16,
        2 => Kind::Q4_0,
        3 => Kind::Q4_1,
        8 => Kind::Q8_0,
        12 => Kind::Q4_K,
        14 => Kind::Q6_K,
        24 => Kind::I8,
        25 => Kind::I16,
        26 => Kind::I32,
        27 => Kind::I64,
        28 => Kind::F64,
        30 => Kind::BF16,
        _ => return None,
    })
}

/// That a kind cannot be read, with the name that ggml gives it.
fn unsupported(number: u32) -> String {
    let name = match number {
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        _ => "unknown",
    };
    format!(
        "its kind is {number} ({name}); supported are F32, F16, BF16, F64, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K and whole numbers"
    )
}
