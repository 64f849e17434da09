//! Byte-level pairs in GGUF files: vocabulary and merges are there, and how text is cut before has a name.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::GgufTokenizer;
use crate::folder::Parts;

/// A way to cut text, by llama.cpp's names of it, as the tokenizer.json of the models that it is named after has it.
pub(super) struct Cut {
    names: &'static [&'static str],
    first: First,
    /// Whether a word that is a token is that token, however its pairs would be joined.
    ignore_merges: bool,
    /// Whether a text begins with the token of that role where the file does not say so.
    begins: bool,
}

/// What is done before bytes are made visible.
enum First {
    /// Words, by GPT-2's own expression.
    Words,
    /// Every digit alone, then words.
    Digits,
    /// What an expression matches.
    Expression {
        pattern: &'static str,
        /// Whether characters are composed first.
        composed: bool,
    },
}

const CUTS: &[Cut] = &[
    Cut {
        names: &["gpt-2"],
        first: First::Words,
        ignore_merges: false,
        begins: false,
    },
    Cut {
        names: &["smollm", "starcoder"],
        first: First::Digits,
        ignore_merges: false,
        begins: false,
    },
    Cut {
        names: &["llama-bpe", "llama3", "llama-v3"],
        first: First::Expression {
            pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            composed: false,
        },
        ignore_merges: true,
        begins: true,
    },
    Cut {
        names: &["qwen2"],
        first: First::Expression {
            pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            composed: true,
        },
        ignore_merges: false,
        begins: false,
    },
];

pub(super) fn parts(said: &GgufTokenizer, cut: &Cut) -> Result<Parts, String> {
    let vocabulary = said.vocabulary()?;
    let merges = merges(&said.merges, &vocabulary)?;
    let added = said.added(&vocabulary);
    let around = said.around(&added, cut.begins)?;
    Ok(Parts {
        model: json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": cut.ignore_merges,
            "vocab": vocabulary, "merges": merges}),
        normalizer: cut.first.normalizer(),
        pre_tokenizer: cut.first.pre_tokenizer(),
        post_processor: around.unwrap_or_else(|| byte_level(true, false)),
        decoder: byte_level(true, true),
        added,
    })
}

impl Cut {
    /// The way with this name; the error lists all names.
    pub(super) fn named(name: Option<&str>) -> Result<&'static Self, String> {
        let names = CUTS.iter().flat_map(|cut| cut.names);
        let known = names.copied().collect::<Vec<_>>().join(", ");
        let Some(name) = name else {
            return Err(format!(
                "tokenizer.ggml.pre is missing, so nothing says how text is cut; known are {known}"
            ));
        };
        let mut cuts = CUTS.iter();
        cuts.find(|cut| cut.names.contains(&name)).ok_or_else(|| {
            format!("tokenizer.ggml.pre {name:?} is not supported; known are {known}")
        })
    }
}

impl First {
    fn normalizer(&self) -> Value {
        match self {
            Self::Expression { composed: true, .. } => json!({"type": "NFC"}),
            Self::Words | Self::Digits | Self::Expression { .. } => Value::Null,
        }
    }

    fn pre_tokenizer(&self) -> Value {
        let words = byte_level(true, true);
        match self {
            Self::Words => words,
            Self::Digits => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                json!({"type": "Sequence", "pretokenizers": [digits, words]})
            }
            Self::Expression { pattern, .. } => {
                let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
                json!({"type": "Sequence", "pretokenizers": [split, byte_level(false, true)]})
            }
        }
    }
}

fn byte_level(words: bool, trim: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": trim, "use_regex": words})
}

fn merges(lines: &[String], vocabulary: &HashMap<String, u32>) -> Result<Vec<[String; 2]>, String> {
    let merge = |line: &String| {
        let (left, right) = line.split_once(' ').ok_or_else(|| {
            format!("tokenizer.ggml.merges has {line:?}, which is not two tokens with a space between them")
        })?;
        let known = |token: &str| vocabulary.contains_key(token);
        if !known(left) || !known(right) || !known(&format!("{left}{right}")) {
            return Err(format!(
                "tokenizer.ggml.merges has {line:?}, which joins tokens that are not in the vocabulary"
            ));
        }
        Ok([left.to_owned(), right.to_owned()])
    };
    lines.iter().map(merge).collect()
}
