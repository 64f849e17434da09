//! Special tokens by role, from special_tokens_map.json, tokenizer_config.json and the defaults of the class.

use serde_json::Value;

use super::classes::Class;
use super::files::{Files, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, broken};
use crate::TextError;

/// The keys in Hugging Face files, in the order in which tokens that are new to the vocabulary get ids.
pub(super) const TOKEN_KEYS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// A special token and its id.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecialToken {
    /// The text.
    pub text: String,
    /// Its id.
    pub id: u32,
}

/// The special tokens of a tokenizer. One token may have several roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecialTokens {
    /// Beginning of sequence (`bos_token`).
    pub bos: Option<SpecialToken>,
    /// End of sequence (`eos_token`).
    pub eos: Option<SpecialToken>,
    /// Separator (`sep_token`).
    pub sep: Option<SpecialToken>,
    /// Classification (`cls_token`).
    pub cls: Option<SpecialToken>,
    /// Padding (`pad_token`).
    pub pad: Option<SpecialToken>,
    /// Mask (`mask_token`).
    pub mask: Option<SpecialToken>,
}

/// A token matched in text before splitting, as in `added_tokens` of tokenizer.json.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddedToken {
    pub(crate) content: String,
    pub(crate) single_word: bool,
    pub(crate) lstrip: bool,
    pub(crate) rstrip: bool,
    pub(crate) normalized: bool,
    pub(crate) special: bool,
}

impl AddedToken {
    /// A special token that is matched in the raw text.
    pub(crate) fn special(content: &str) -> Self {
        Self {
            content: content.to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }

    /// Reads `{"content": .., "lstrip": .., ..}`; `None` if it is not a token.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let flag = |name: &str| value.get(name).and_then(Value::as_bool);
        let special = flag("special").unwrap_or(false);
        Some(Self {
            content: value.get("content")?.as_str()?.to_owned(),
            single_word: flag("single_word").unwrap_or(false),
            lstrip: flag("lstrip").unwrap_or(false),
            rstrip: flag("rstrip").unwrap_or(false),
            normalized: flag("normalized").unwrap_or(!special),
            special,
        })
    }
}

/// The special tokens configured by the folder, or the defaults of its class.
#[derive(Debug)]
pub(super) struct ConfiguredTokens {
    /// In the order of [`TOKEN_KEYS`].
    pub(super) tokens: [Option<AddedToken>; 7],
    pub(super) additional: Vec<AddedToken>,
    /// The texts configured by the folder, which make tokens of added_tokens.json special.
    pub(super) configured: Vec<String>,
}

impl ConfiguredTokens {
    pub(super) fn read(files: &Files, class: Option<&Class>) -> Result<Self, TextError> {
        let mut configured = Vec::new();
        let mut tokens: [Option<AddedToken>; 7] = Default::default();
        for (index, token) in tokens.iter_mut().enumerate() {
            let key = TOKEN_KEYS[index];
            *token = match configured_value(files, key) {
                Some(Value::Null) => None,
                Some(value) => {
                    let token =
                        token_of(value, key, class).ok_or_else(|| invalid_token(files, key))?;
                    configured.push(token.content.clone());
                    Some(token)
                }
                None => class
                    .map(|class| class.tokens[index])
                    .filter(|text| !text.is_empty())
                    .map(|text| token_from_text(text, key, class)),
            };
        }
        let additional = additional_tokens(files)?;
        configured.extend(additional.iter().map(|token| token.content.clone()));
        Ok(Self {
            tokens,
            additional,
            configured,
        })
    }

    /// The text of a token by its key.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let index = TOKEN_KEYS.iter().position(|known| *known == key)?;
        self.tokens[index]
            .as_ref()
            .map(|token| token.content.as_str())
    }

    /// The tokens that have an id.
    pub(super) fn with_ids(&self, id: impl Fn(&str) -> Option<u32>) -> SpecialTokens {
        let token = |key: &str| {
            let text = self.text(key)?;
            Some(SpecialToken {
                text: text.to_owned(),
                id: id(text)?,
            })
        };
        SpecialTokens {
            bos: token("bos_token"),
            eos: token("eos_token"),
            sep: token("sep_token"),
            cls: token("cls_token"),
            pad: token("pad_token"),
            mask: token("mask_token"),
        }
    }
}

/// Whether tokenizer_config.json has the added tokens, which overrides special_tokens_map.json and added_tokens.json.
pub(super) fn has_added_tokens_decoder(files: &Files) -> bool {
    files.config.contains_key("added_tokens_decoder")
}

fn configured_value<'files>(files: &'files Files, key: &str) -> Option<&'files Value> {
    let from_map = files
        .special
        .get(key)
        .filter(|_| !has_added_tokens_decoder(files));
    from_map.or_else(|| files.config.get(key))
}

fn token_of(value: &Value, key: &str, class: Option<&Class>) -> Option<AddedToken> {
    if let Some(text) = value.as_str() {
        return Some(token_from_text(text, key, class));
    }
    let mut token = AddedToken::from_json(value)?;
    token.special = true;
    token.normalized = value
        .get("normalized")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Some(token)
}

/// A token given as a string.
fn token_from_text(text: &str, key: &str, class: Option<&Class>) -> AddedToken {
    let mut token = AddedToken::special(text);
    if let Some(class) = class {
        token.normalized = class.normalized;
        if key == "mask_token" {
            token.lstrip = class.mask.lstrip;
            token.normalized = class.mask.normalized;
        }
    }
    token
}

fn additional_tokens(files: &Files) -> Result<Vec<AddedToken>, TextError> {
    const KEY: &str = "additional_special_tokens";
    let from_map = files
        .special
        .get(KEY)
        .filter(|_| !has_added_tokens_decoder(files));
    let mut tokens: Vec<AddedToken> = Vec::new();
    let lists = [
        (TOKENIZER_CONFIG, files.config.get(KEY)),
        (SPECIAL_TOKENS_MAP, from_map),
    ];
    for (name, list) in lists {
        let Some(list) = list.filter(|list| !list.is_null()) else {
            continue;
        };
        let invalid = || not_a_token(files, name, KEY);
        for value in list.as_array().ok_or_else(invalid)? {
            let token = token_of(value, KEY, None).ok_or_else(invalid)?;
            if tokens.iter().all(|known| known.content != token.content) {
                tokens.push(token);
            }
        }
    }
    Ok(tokens)
}

fn invalid_token(files: &Files, key: &str) -> TextError {
    let in_map = files.special.contains_key(key) && !has_added_tokens_decoder(files);
    let name = if in_map {
        SPECIAL_TOKENS_MAP
    } else {
        TOKENIZER_CONFIG
    };
    not_a_token(files, name, key)
}

fn not_a_token(files: &Files, name: &str, key: &str) -> TextError {
    broken(&files.folder.join(name), format!("`{key}` is not a token"))
}
