//! Changes of good inputs: a function of the input and a seed, so that what a test found is found again.

mod bytes;
mod json;

use serde_json::Value;

use crate::Files;

/// How inputs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Numbers and lengths among other bytes.
    Bytes,
    /// Lines of text.
    Text,
    /// A length, so many bytes of JSON, and other bytes.
    Safetensors,
    /// Several files, JSON among them.
    Files,
    /// A recipe.
    Toml,
}

/// The input with a few changes. The same seed makes the same changes.
pub fn mutated(form: Form, input: &[u8], seed: u64) -> Vec<u8> {
    let mut draw = Draw(seed);
    let changes = 1 + draw.below(3);
    let mut input = input.to_owned();
    for _ in 0..changes {
        input = changed(form, input, &mut draw);
    }
    input
}

fn changed(form: Form, input: Vec<u8>, draw: &mut Draw) -> Vec<u8> {
    // A quarter of the changes know nothing of the form.
    if draw.below(4) == 0 {
        return bytes::changed(input, draw);
    }
    match form {
        Form::Bytes => bytes::changed(input, draw),
        Form::Text => bytes::changed_text(input, draw),
        Form::Safetensors => safetensors(&input, draw).unwrap_or(input),
        Form::Files => files(&input, draw),
        Form::Toml => toml(&input, draw).unwrap_or_else(|| bytes::changed_text(input, draw)),
    }
}

/// A change within the header, whose length is told right, so that the change itself is looked at.
fn safetensors(input: &[u8], draw: &mut Draw) -> Option<Vec<u8>> {
    let (length, rest) = input.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, numbers) = rest.split_at_checked(length)?;
    let mut header: Value = serde_json::from_slice(header).ok()?;
    json::change(&mut header, draw);
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    Some([&length, header.as_bytes(), numbers].concat())
}

/// A change within one of the files.
fn files(input: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut files = Files::parse(input);
    if files.0.is_empty() {
        return bytes::changed(input.to_owned(), draw);
    }
    let which = draw.below(files.0.len());
    if draw.below(16) == 0 {
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
            json::change(&mut value, draw);
            value.to_string().into_bytes()
        }
        Err(_) => changed(form, taken, draw),
    };
    files.to_bytes()
}

fn toml(input: &[u8], draw: &mut Draw) -> Option<Vec<u8>> {
    let table: toml::Table = toml::from_str(std::str::from_utf8(input).ok()?).ok()?;
    let mut value = serde_json::to_value(table).ok()?;
    json::change(&mut value, draw);
    Some(toml::to_string(&value).ok()?.into_bytes())
}

/// Numbers that look random and depend on a seed alone (SplitMix64; Steele et al. 2014).
pub(crate) struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where there is none.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % (end as u64).max(1)) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
