//! Mutations of inputs, deterministic in a seed, so that failures are reproducible.

mod bytes;
mod json;

use serde_json::Value;

use crate::Files;

/// The structure of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Binary.
    Bytes,
    /// Lines of text.
    Text,
    /// A length, JSON of that length, and data.
    Safetensors,
    /// Several files, see [`Files`].
    Files,
    /// A recipe in TOML.
    Toml,
}

/// The input with a few mutations, determined by the seed.
pub fn mutated(form: Form, input: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    let changes = 1 + rng.below(3);
    let mut input = input.to_owned();
    for _ in 0..changes {
        input = changed(form, input, &mut rng);
    }
    input
}

fn changed(form: Form, input: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    // A quarter of the mutations ignore the structure.
    if rng.below(4) == 0 {
        return bytes::changed(input, rng);
    }
    match form {
        Form::Bytes => bytes::changed(input, rng),
        Form::Text => bytes::changed_text(input, rng),
        Form::Safetensors => safetensors(&input, rng).unwrap_or(input),
        Form::Files => files(&input, rng),
        Form::Toml => toml(&input, rng).unwrap_or_else(|| bytes::changed_text(input, rng)),
    }
}

/// Mutates the header and updates its length, so that parsers reach the mutation.
fn safetensors(input: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let (length, rest) = input.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    let mut header: Value = serde_json::from_slice(header).ok()?;
    json::change(&mut header, rng);
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    Some([&length, header.as_bytes(), data].concat())
}

/// Mutates one of the files.
fn files(input: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut files = Files::parse(input);
    if files.0.is_empty() {
        return bytes::changed(input.to_owned(), rng);
    }
    let which = rng.below(files.0.len());
    if rng.below(16) == 0 {
        files.0.remove(which);
        return files.to_bytes();
    }
    let (name, content) = &mut files.0[which];
    let taken = std::mem::take(content);
    let form = match name.rsplit_once('.') {
        Some((_, "safetensors")) => Form::Safetensors,
        Some((_, "txt" | "jinja")) => Form::Text,
        Some((_, "toml")) => Form::Toml,
        _ => Form::Bytes,
    };
    *content = match serde_json::from_slice::<Value>(&taken) {
        Ok(mut value) => {
            json::change(&mut value, rng);
            value.to_string().into_bytes()
        }
        Err(_) => changed(form, taken, rng),
    };
    files.to_bytes()
}

fn toml(input: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let table: toml::Table = toml::from_str(std::str::from_utf8(input).ok()?).ok()?;
    let mut value = serde_json::to_value(table).ok()?;
    json::change(&mut value, rng);
    Some(toml::to_string(&value).ok()?.into_bytes())
}

/// SplitMix64. Steele et al. 2014.
pub(crate) struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % (end as u64).max(1)) as usize
    }

    fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
