//! Byte-level BPE tokenizers of GGUF files: the file has vocabulary and merges, and the name of a pre-tokenizer.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::GgufTokenizer;
use crate::folder::TokenizerJson;

/// A pre-tokenizer by its names in llama.cpp, as in the tokenizer.json of the models it is named after.
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    split: Split,
    /// `ignore_merges`: a word in the vocabulary is one token, whatever the merges.
    ignore_merges: bool,
    /// The default of `add_bos_token`.
    add_bos: bool,
}

/// How text is split before the byte-level encoding.
enum Split {
    /// The regex of GPT-2.
    Gpt2,
    /// Single digits, then the regex of GPT-2.
    Digits,
    /// Another regex.
    Regex {
        pattern: &'static str,
        /// Whether text is normalized to NFC first.
        nfc: bool,
    },
}

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["gpt-2"],
        split: Split::Gpt2,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["smollm", "starcoder"],
        split: Split::Digits,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        split: Split::Regex {
            pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            nfc: false,
        },
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["qwen2"],
        split: Split::Regex {
            pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            nfc: true,
        },
        ignore_merges: false,
        add_bos: false,
    },
];

pub(super) fn tokenizer_json(
    gguf: &GgufTokenizer,
    pre: &PreTokenizer,
) -> Result<TokenizerJson, String> {
    let vocabulary = gguf.vocabulary()?;
    let merges = merges(&gguf.merges, &vocabulary)?;
    let added_tokens = gguf.added_tokens(&vocabulary);
    let post_processor = gguf.post_processor(&added_tokens, pre.add_bos)?;
    Ok(TokenizerJson {
        model: json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": pre.ignore_merges,
            "vocab": vocabulary, "merges": merges}),
        normalizer: pre.split.normalizer(),
        pre_tokenizer: pre.split.pre_tokenizer(),
        post_processor: post_processor.unwrap_or_else(|| byte_level(true, false)),
        decoder: byte_level(true, true),
        added_tokens,
    })
}

impl PreTokenizer {
    /// The pre-tokenizer of this name; the error lists all names.
    pub(super) fn named(name: Option<&str>) -> Result<&'static Self, String> {
        let names = PRE_TOKENIZERS.iter().flat_map(|pre| pre.names);
        let known = names.copied().collect::<Vec<_>>().join(", ");
        let Some(name) = name else {
            return Err(format!(
                "tokenizer.ggml.pre is missing, so the pre-tokenizer is unknown; supported are {known}"
            ));
        };
        let mut pre_tokenizers = PRE_TOKENIZERS.iter();
        pre_tokenizers
            .find(|pre| pre.names.contains(&name))
            .ok_or_else(|| {
                format!("tokenizer.ggml.pre {name:?} is not supported; supported are {known}")
            })
    }
}

impl Split {
    fn normalizer(&self) -> Value {
        match self {
            Self::Regex { nfc: true, .. } => json!({"type": "NFC"}),
            Self::Gpt2 | Self::Digits | Self::Regex { .. } => Value::Null,
        }
    }

    fn pre_tokenizer(&self) -> Value {
        let use_regex = byte_level(true, true);
        match self {
            Self::Gpt2 => use_regex,
            Self::Digits => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                json!({"type": "Sequence", "pretokenizers": [digits, use_regex]})
            }
            Self::Regex { pattern, .. } => {
                let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
                json!({"type": "Sequence", "pretokenizers": [split, byte_level(false, true)]})
            }
        }
    }
}

fn byte_level(use_regex: bool, trim: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": trim, "use_regex": use_regex})
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
