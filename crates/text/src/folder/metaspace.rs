//! Normalizer, pre-tokenizer and decoder of SentencePiece models.

use serde_json::{Value, json};

use super::classes::Family;
use super::files::Files;
use super::tokenizer_json::SPACE;
use crate::TextError;
use crate::base64::encode_base64;
use crate::sentence_piece::SentencePieceModel;

/// How spaces become `▁`, and where one is prepended.
pub(super) struct Metaspace {
    /// `prepend_scheme`: "always", "first" (only before the first section) or "never".
    prepend: &'static str,
    /// Whether the normalizer replaces spaces instead of the pre-tokenizer, as in legacy Llama.
    in_normalizer: bool,
    /// Whether the pre-tokenizer splits words. Llama does not.
    split: bool,
}

impl Metaspace {
    pub(super) fn read(
        files: &Files,
        family: Family,
        model: &SentencePieceModel,
    ) -> Result<Self, TextError> {
        let prefix_space = files.flag("add_prefix_space")?;
        if prefix_space.is_none() && !model.dummy_prefix {
            return Err(files.ambiguous(
                "the SentencePiece model has no add_dummy_prefix, and tokenizer_config.json does not set `add_prefix_space`",
            ));
        }
        let legacy = files.flag("legacy")?.unwrap_or(true);
        let has_legacy = matches!(family, Family::T5 | Family::Llama);
        let prepend = match prefix_space {
            Some(false) if has_legacy => "never",
            Some(false) => {
                return Err(files.unsupported("`add_prefix_space` false of this tokenizer class"));
            }
            _ if has_legacy && !legacy => "first",
            _ => "always",
        };
        let is_llama = family == Family::Llama;
        Ok(Self {
            prepend,
            in_normalizer: is_llama && legacy,
            split: !is_llama,
        })
    }

    fn metaspace(&self) -> Value {
        json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": self.prepend, "split": self.split})
    }

    pub(super) fn pre_tokenizer(&self) -> Value {
        if self.in_normalizer {
            Value::Null
        } else {
            self.metaspace()
        }
    }

    pub(super) fn decoder(&self, byte_fallback: bool) -> Value {
        let bytes = json!({"type": "ByteFallback"});
        if self.split {
            return if byte_fallback {
                json!({"type": "Sequence", "decoders": [bytes, self.metaspace()]})
            } else {
                self.metaspace()
            };
        }
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            bytes,
            json!({"type": "Fuse"}),
        ];
        if self.prepend != "never" {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": decoders})
    }
}

/// The normalizer: whitespace, and the charsmap of the model.
pub(super) fn normalizer(
    files: &Files,
    family: Family,
    model: &SentencePieceModel,
    metaspace: &Metaspace,
) -> Result<Value, TextError> {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let mut steps = Vec::new();
    if family == Family::Llama {
        if !model.charsmap.is_empty() {
            return Err(files.unsupported(
                "a precompiled_charsmap in the SentencePiece model of this tokenizer class",
            ));
        }
        if !metaspace.in_normalizer {
            return Ok(Value::Null);
        }
        if metaspace.prepend != "never" {
            steps.push(json!({"type": "Prepend", "prepend": SPACE}));
        }
        steps.push(replace(json!({"String": " "}), SPACE));
        return Ok(json!({"type": "Sequence", "normalizers": steps}));
    }
    let is_albert = family == Family::Albert;
    if is_albert {
        steps.push(replace(json!({"String": "``"}), "\""));
        steps.push(replace(json!({"String": "''"}), "\""));
        if !files.flag("keep_accents")?.unwrap_or(false) {
            steps.push(json!({"type": "NFKD"}));
            steps.push(json!({"type": "StripAccents"}));
        }
        if files.flag("do_lower_case")?.unwrap_or(true) {
            steps.push(json!({"type": "Lowercase"}));
        }
    }
    steps.extend(precompiled_charsmap(model));
    if !is_albert {
        steps.push(json!({"type": "Strip", "strip_left": false, "strip_right": true}));
    }
    steps.push(replace(
        json!({"Regex": " {2,}"}),
        if is_albert { " " } else { SPACE },
    ));
    Ok(json!({"type": "Sequence", "normalizers": steps}))
}

/// The normalizer of the charsmap, if the model has one.
pub(super) fn precompiled_charsmap(model: &SentencePieceModel) -> Option<Value> {
    let charsmap = encode_base64(&model.charsmap);
    let step = json!({"type": "Precompiled", "precompiled_charsmap": charsmap});
    Some(step).filter(|_| !model.charsmap.is_empty())
}
