//! Byte mutations: truncation, bit flips, splices, and extreme numbers.

use super::Rng;

/// The size limit of mutated inputs.
const MAX_BYTES: usize = 1 << 20;

/// Boundary values of sizes and offsets.
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

/// Extreme numbers as text.
const NUMERALS: [&str; 12] = [
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

pub(super) fn changed(mut input: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(input.len());
    match rng.below(8) {
        0 => input.truncate(at),
        1 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
        2 if !input.is_empty() => input[at] = rng.next() as u8,
        3 => splice(&mut input, rng),
        4 => {
            let end = (at + 1 + rng.below(16)).min(input.len());
            input.drain(at.min(end)..end);
        }
        // Most numbers of a file are near its start.
        5 => overwrite_number(&mut input, rng.below(at + 1), rng),
        6 => overwrite_number(&mut input, at, rng),
        _ => replace_numeral(&mut input, rng),
    }
    input
}

pub(super) fn changed_text(mut input: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    let (one, other) = (rng.below(lines.len()), rng.below(lines.len()));
    match rng.below(6) {
        0 => replace_numeral(&mut input, rng),
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
            let odd = *rng.choose(&["\0", "\u{feff}", "\u{202e}", "\r", "\u{1F600}", "\t"]);
            let at = rng.below(input.len() + 1);
            input.splice(at..at, odd.bytes());
        }
        _ => return changed(input, rng),
    }
    input
}

/// Copies a range elsewhere, overwriting or inserting.
fn splice(input: &mut Vec<u8>, rng: &mut Rng) {
    let from = rng.below(input.len());
    let end = (from + 1 + rng.below(64)).min(input.len());
    let part = input[from..end].to_vec();
    let at = rng.below(input.len());
    let over = if rng.below(2) == 0 { part.len() } else { 0 };
    let behind = (at + over).min(input.len());
    if input.len() + part.len() < MAX_BYTES {
        input.splice(at..behind, part);
    }
}

/// Overwrites one, two, four or eight bytes by an extreme number.
fn overwrite_number(input: &mut [u8], at: usize, rng: &mut Rng) {
    let number = rng.choose(&EXTREMES).to_le_bytes();
    let size = *rng.choose(&[1, 2, 4, 8]);
    if let Some(place) = input.get_mut(at..at + size) {
        place.copy_from_slice(&number[..size]);
    }
}

/// Replaces a run of digits by an extreme number.
fn replace_numeral(input: &mut Vec<u8>, rng: &mut Rng) {
    let start = rng.below(input.len());
    let Some(first) = input[start..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let first = start + first;
    let digits = input[first..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let end = first + digits.count();
    input.splice(first..end, rng.choose(&NUMERALS).bytes());
}
