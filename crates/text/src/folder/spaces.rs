//! Spaces and characters around SentencePiece models: normalizer, pre-tokenizer and decoder.

use serde_json::{Value, json};

use super::classes::Arrangement;
use super::files::Files;
use super::parts::SPACE;
use crate::TextError;
use crate::base64::base64;
use crate::sentence_piece::PieceModel;

/// How spaces are made visible, and whether one is put before the text.
pub(super) struct Spaces {
    /// "always", "first" (only before the first part) or "never", as in tokenizer.json.
    prepend: &'static str,
    /// Whether the normalizer does it for the whole text, as Llama's does until `legacy` is false.
    in_normalizer: bool,
    /// Whether words are parted before the model sees them. Models of the Llama kind see the whole text.
    split: bool,
}

impl Spaces {
    pub(super) fn read(
        files: &Files,
        arrangement: Arrangement,
        model: &PieceModel,
    ) -> Result<Self, TextError> {
        let said = files.flag("add_prefix_space")?;
        if said.is_none() && !model.dummy_prefix {
            return Err(files.undecided(
                "the SentencePiece model puts no space before the text, and tokenizer_config.json does not say `add_prefix_space`",
            ));
        }
        let legacy = files.flag("legacy")?.unwrap_or(true);
        let has_legacy = matches!(
            arrangement,
            Arrangement::PiecesWithExtraIds | Arrangement::PiecesAfterBeginning
        );
        let prepend = match said {
            Some(false) if has_legacy => "never",
            Some(false) => {
                return Err(files.undecided(
                    "`add_prefix_space` is false, which this kind of tokenizer does not know",
                ));
            }
            _ if has_legacy && !legacy => "first",
            _ => "always",
        };
        let whole = arrangement == Arrangement::PiecesAfterBeginning;
        Ok(Self {
            prepend,
            in_normalizer: whole && legacy,
            split: !whole,
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

/// What happens to text before it is cut: spaces, and the model's own character rules.
pub(super) fn normalizer(
    files: &Files,
    arrangement: Arrangement,
    model: &PieceModel,
    spaces: &Spaces,
) -> Result<Value, TextError> {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let mut steps = Vec::new();
    if arrangement == Arrangement::PiecesAfterBeginning {
        if !model.charsmap.is_empty() {
            return Err(files.undecided("the SentencePiece model replaces characters, which this kind of tokenizer does not do"));
        }
        if !spaces.in_normalizer {
            return Ok(Value::Null);
        }
        if spaces.prepend != "never" {
            steps.push(json!({"type": "Prepend", "prepend": SPACE}));
        }
        steps.push(replace(json!({"String": " "}), SPACE));
        return Ok(json!({"type": "Sequence", "normalizers": steps}));
    }
    let lowered = arrangement == Arrangement::PiecesLowered;
    if lowered {
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
    steps.extend(replaced_characters(model));
    if !lowered {
        steps.push(json!({"type": "Strip", "strip_left": false, "strip_right": true}));
    }
    steps.push(replace(
        json!({"Regex": " {2,}"}),
        if lowered { " " } else { SPACE },
    ));
    Ok(json!({"type": "Sequence", "normalizers": steps}))
}

/// The step that replaces characters by the model's own rules, if it has some.
pub(super) fn replaced_characters(model: &PieceModel) -> Option<Value> {
    let rules = base64(&model.charsmap);
    let step = json!({"type": "Precompiled", "precompiled_charsmap": rules});
    Some(step).filter(|_| !model.charsmap.is_empty())
}
