//! Validates what would make the `tokenizers` crate panic on a tokenizer.json, and names what it does not support.

use serde_json::Value;

use crate::base64::decode_base64;
use crate::sentence_piece::check_charsmap;

/// An error if the file is not JSON, or has a damaged charsmap.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    check_normalizer(&file["normalizer"])?;
    check_growth("normalizer", &file["normalizer"])?;
    check_growth("decoder", &file["decoder"])
}

/// How many times longer `Replace` steps may make a text, one after the other.
const MAX_GROWTH: f64 = 4096.0;

/// Refuses replacements that multiply text.
fn check_growth(part: &str, value: &Value) -> Result<(), String> {
    let growth = growth(value);
    match growth <= MAX_GROWTH {
        true => Ok(()),
        false => Err(format!(
            "its {part} may make a text {growth:.0} times longer, and the limit is {MAX_GROWTH}"
        )),
    }
}

/// How many times longer the replacements of a part may make a text.
fn growth(part: &Value) -> f64 {
    const SEQUENCES: [&str; 2] = ["normalizers", "decoders"];
    let own = match part["type"].as_str() {
        Some("Replace") => {
            let content = part["content"].as_str().unwrap_or_default().len() as f64;
            match part["pattern"]["String"].as_str() {
                Some(text) if !text.is_empty() => (content / text.len() as f64).max(1.0),
                // It may match between any two characters.
                _ => content + 1.0,
            }
        }
        _ => 1.0,
    };
    let lists = SEQUENCES.iter().filter_map(|key| part[key].as_array());
    own * lists.flatten().map(growth).product::<f64>()
}

/// The types that the `tokenizers` crate has of each part of a file.
const TYPES: [(&str, &[&str]); 5] = [
    ("model", &["BPE", "Unigram", "WordLevel", "WordPiece"]),
    (
        "normalizer",
        &[
            "BertNormalizer",
            "ByteLevel",
            "Lowercase",
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Nmt",
            "Precompiled",
            "Prepend",
            "Replace",
            "Sequence",
            "Strip",
            "StripAccents",
        ],
    ),
    (
        "pre_tokenizer",
        &[
            "BertPreTokenizer",
            "ByteLevel",
            "CharDelimiterSplit",
            "Digits",
            "FixedLength",
            "Metaspace",
            "Punctuation",
            "Sequence",
            "Split",
            "UnicodeScripts",
            "Whitespace",
            "WhitespaceSplit",
        ],
    ),
    (
        "post_processor",
        &[
            "BertProcessing",
            "ByteLevel",
            "RobertaProcessing",
            "Sequence",
            "TemplateProcessing",
        ],
    ),
    (
        "decoder",
        &[
            "BPEDecoder",
            "ByteFallback",
            "ByteLevel",
            "CTC",
            "Fuse",
            "Metaspace",
            "Replace",
            "Sequence",
            "Strip",
            "WordPiece",
        ],
    ),
];

/// Why the `tokenizers` crate refuses a file that may be valid: a version or a type that it does not have.
pub(super) fn unsupported(bytes: &[u8]) -> Option<String> {
    let file: Value = serde_json::from_slice(bytes).ok()?;
    if let Some(version) = file["version"].as_str().filter(|it| *it != "1.0") {
        let version = excerpt(version);
        return Some(format!(
            "version {version} is not supported; supported is \"1.0\""
        ));
    }
    TYPES.iter().find_map(|(part, known)| {
        let name = excerpt(unknown_type(&file[part], known)?);
        let known = known.join(", ");
        Some(format!(
            "{part}.type {name} is not supported; supported are {known}"
        ))
    })
}

/// The first type of a part, or of those that it is a sequence of, that is not known.
fn unknown_type<'file>(part: &'file Value, known: &[&str]) -> Option<&'file str> {
    const SEQUENCES: [&str; 4] = ["normalizers", "pretokenizers", "processors", "decoders"];
    let own = part["type"].as_str().filter(|name| !known.contains(name));
    own.or_else(|| {
        let lists = SEQUENCES.iter().filter_map(|key| part[key].as_array());
        lists.flatten().find_map(|inner| unknown_type(inner, known))
    })
}

/// Text of a file for a message, quoted and truncated.
fn excerpt(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

/// Checks a normalizer and nested ones.
fn check_normalizer(value: &Value) -> Result<(), String> {
    const KEY: &str = "precompiled_charsmap";
    if value["type"] == "Precompiled" || value.get(KEY).is_some() {
        let charsmap = value[KEY].as_str().and_then(decode_base64);
        let charsmap = charsmap.filter(|charsmap| !charsmap.is_empty());
        let charsmap = charsmap.ok_or_else(|| format!("its {KEY} is not base64"))?;
        check_charsmap(&charsmap)?;
    }
    match value {
        Value::Array(values) => values.iter().try_for_each(check_normalizer),
        Value::Object(members) => members.values().try_for_each(check_normalizer),
        _ => Ok(()),
    }
}
