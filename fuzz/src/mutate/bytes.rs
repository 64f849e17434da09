//! Changes of bytes: cuts, flipped bits, parts put elsewhere, and numbers at the ends of their ranges.

use super::Draw;

/// Far more than any input; changes that would go beyond it are left out.
const LONGEST: usize = 1 << 20;

/// What sizes and offsets are checked against, off by one on both sides.
const EXTREMES: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Numbers as texts.
const WORDS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "1e308",
    "1e-320",
    "nan",
    "",
];

pub(super) fn changed(mut input: Vec<u8>, draw: &mut Draw) -> Vec<u8> {
    let at = draw.below(input.len());
    match draw.below(8) {
        0 => input.truncate(at),
        1 if !input.is_empty() => input[at] ^= 1 << draw.below(8),
        2 if !input.is_empty() => input[at] = draw.next() as u8,
        3 => splice(&mut input, draw),
        4 => {
            let end = (at + 1 + draw.below(16)).min(input.len());
            input.drain(at.min(end)..end);
        }
        // Most numbers of files lie near their beginnings.
        5 => number(&mut input, draw.below(at + 1), draw),
        6 => number(&mut input, at, draw),
        _ => word(&mut input, draw),
    }
    input
}

pub(super) fn changed_text(mut input: Vec<u8>, draw: &mut Draw) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    let (one, other) = (draw.below(lines.len()), draw.below(lines.len()));
    match draw.below(6) {
        0 => word(&mut input, draw),
        1 if !lines.is_empty() => {
            lines.remove(one);
            input = lines.concat();
        }
        2 if !lines.is_empty() => {
            lines.insert(one, lines[other]);
            input = lines.concat();
        }
        3 if !lines.is_empty() => {
            lines.swap(one, other);
            input = lines.concat();
        }
        4 => {
            let odd = *draw.one_of(&["\0", "\u{feff}", "\u{202e}", "\r", "\u{1F600}", "\t"]);
            let at = draw.below(input.len() + 1);
            input.splice(at..at, odd.bytes());
        }
        _ => return changed(input, draw),
    }
    input
}

/// Puts a copy of some bytes elsewhere, over what is there or between.
fn splice(input: &mut Vec<u8>, draw: &mut Draw) {
    let from = draw.below(input.len());
    let end = (from + 1 + draw.below(64)).min(input.len());
    let part = input[from..end].to_vec();
    let at = draw.below(input.len());
    let over = if draw.below(2) == 0 { part.len() } else { 0 };
    let behind = (at + over).min(input.len());
    if input.len() + part.len() < LONGEST {
        input.splice(at..behind, part);
    }
}

/// Writes an extreme number over one, two, four or eight bytes.
fn number(input: &mut [u8], at: usize, draw: &mut Draw) {
    let number = draw.one_of(&EXTREMES).to_le_bytes();
    let size = *draw.one_of(&[1, 2, 4, 8]);
    if let Some(place) = input.get_mut(at..at + size) {
        place.copy_from_slice(&number[..size]);
    }
}

/// Puts an extreme in place of a run of digits.
fn word(input: &mut Vec<u8>, draw: &mut Draw) {
    let start = draw.below(input.len());
    let Some(first) = input[start..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let first = start + first;
    let digits = input[first..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let end = first + digits.count();
    input.splice(first..end, draw.one_of(&WORDS).bytes());
}
