//! Special tokens by role, from special_tokens_map.json, tokenizer_config.json and the defaults of the class.

use serde_json::Value;

use super::classes::Class;
use super::files::{Files, broken};
use crate::TextError;

/// The names of the roles in Hugging Face's files, in the order in which tokens that are new to the vocabulary get ids.
pub(super) const ROLE_KEYS: [&str; 7] = [
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
    /// The token as written.
    pub text: String,
    /// Its id.
    pub id: u32,
}

/// The special tokens of a tokenizer by what they are for. One token may have several roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecialTokens {
    /// Begins a text (`bos_token`).
    pub beginning: Option<SpecialToken>,
    /// Ends a text (`eos_token`).
    pub end: Option<SpecialToken>,
    /// Stands for what the vocabulary cannot express (`unk_token`).
    pub unknown: Option<SpecialToken>,
    /// Stands between two texts (`sep_token`).
    pub separator: Option<SpecialToken>,
    /// Stands for the whole text in classification (`cls_token`).
    pub class: Option<SpecialToken>,
    /// Fills rows of a batch to one length (`pad_token`).
    pub padding: Option<SpecialToken>,
    /// Hides a token that is to be predicted (`mask_token`).
    pub mask: Option<SpecialToken>,
}

/// A token with the rules of finding it in text, as in the field `added_tokens` of tokenizer.json.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenForm {
    pub(crate) content: String,
    pub(crate) single_word: bool,
    pub(crate) left_strip: bool,
    pub(crate) right_strip: bool,
    pub(crate) normalized: bool,
    pub(crate) special: bool,
}

impl TokenForm {
    /// A special token that is looked for in the text as it stands.
    pub(crate) fn special(content: &str) -> Self {
        Self {
            content: content.to_owned(),
            single_word: false,
            left_strip: false,
            right_strip: false,
            normalized: false,
            special: true,
        }
    }

    /// Reads `{"content": .., "lstrip": .., ..}`; `None` if it is something else.
    pub(super) fn of_object(value: &Value) -> Option<Self> {
        let flag = |name: &str| value.get(name).and_then(Value::as_bool);
        let special = flag("special").unwrap_or(false);
        Some(Self {
            content: value.get("content")?.as_str()?.to_owned(),
            single_word: flag("single_word").unwrap_or(false),
            left_strip: flag("lstrip").unwrap_or(false),
            right_strip: flag("rstrip").unwrap_or(false),
            normalized: flag("normalized").unwrap_or(!special),
            special,
        })
    }
}

/// The tokens of the roles as the folder and the class give them, and the other special tokens.
#[derive(Debug)]
pub(super) struct Roles {
    /// In the order of [`ROLE_KEYS`].
    pub(super) forms: [Option<TokenForm>; 7],
    pub(super) additional: Vec<TokenForm>,
    /// The texts that the files themselves give, which decide whether a token of added_tokens.json is special.
    pub(super) given: Vec<String>,
}

impl Roles {
    pub(super) fn read(files: &Files, class: Option<&Class>) -> Result<Self, TextError> {
        let mut given = Vec::new();
        let mut forms: [Option<TokenForm>; 7] = Default::default();
        for (index, form) in forms.iter_mut().enumerate() {
            let key = ROLE_KEYS[index];
            *form = match given_value(files, key) {
                Some(Value::Null) => None,
                Some(value) => {
                    let form = form_of(value, key, class).ok_or_else(|| wrong_token(files, key))?;
                    given.push(form.content.clone());
                    Some(form)
                }
                None => class
                    .map(|class| class.tokens[index])
                    .filter(|text| !text.is_empty())
                    .map(|text| written_form(text, key, class)),
            };
        }
        let additional = additional_tokens(files)?;
        given.extend(additional.iter().map(|form| form.content.clone()));
        Ok(Self {
            forms,
            additional,
            given,
        })
    }

    /// The text of a role by its key.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let index = ROLE_KEYS.iter().position(|known| *known == key)?;
        self.forms[index].as_ref().map(|form| form.content.as_str())
    }

    /// The roles with the ids that `id` finds; a token without an id is no token.
    pub(super) fn with_ids(&self, id: impl Fn(&str) -> Option<u32>) -> SpecialTokens {
        let token = |key: &str| {
            let text = self.text(key)?;
            Some(SpecialToken {
                text: text.to_owned(),
                id: id(text)?,
            })
        };
        SpecialTokens {
            beginning: token("bos_token"),
            end: token("eos_token"),
            unknown: token("unk_token"),
            separator: token("sep_token"),
            class: token("cls_token"),
            padding: token("pad_token"),
            mask: token("mask_token"),
        }
    }
}

/// Whether tokenizer_config.json holds the added tokens itself; special_tokens_map.json and added_tokens.json then do not count.
pub(super) fn config_holds_tokens(files: &Files) -> bool {
    files.config.contains_key("added_tokens_decoder")
}

fn given_value<'files>(files: &'files Files, key: &str) -> Option<&'files Value> {
    let of_map = files
        .special
        .get(key)
        .filter(|_| !config_holds_tokens(files));
    of_map.or_else(|| files.config.get(key))
}

fn form_of(value: &Value, key: &str, class: Option<&Class>) -> Option<TokenForm> {
    if let Some(text) = value.as_str() {
        return Some(written_form(text, key, class));
    }
    let mut form = TokenForm::of_object(value)?;
    form.special = true;
    form.normalized = value
        .get("normalized")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Some(form)
}

/// The form of a token of which only the text is known.
fn written_form(text: &str, key: &str, class: Option<&Class>) -> TokenForm {
    let mut form = TokenForm::special(text);
    if let Some(class) = class {
        form.normalized = class.normalized;
        if key == "mask_token" {
            form.left_strip = class.mask.takes_space;
            form.normalized = class.mask.normalized;
        }
    }
    form
}

fn additional_tokens(files: &Files) -> Result<Vec<TokenForm>, TextError> {
    const KEY: &str = "additional_special_tokens";
    let of_map = files
        .special
        .get(KEY)
        .filter(|_| !config_holds_tokens(files));
    let mut forms: Vec<TokenForm> = Vec::new();
    for list in [files.config.get(KEY), of_map].into_iter().flatten() {
        if list.is_null() {
            continue;
        }
        let list = list.as_array().ok_or_else(|| wrong_token(files, KEY))?;
        for value in list {
            let form = form_of(value, KEY, None).ok_or_else(|| wrong_token(files, KEY))?;
            if forms.iter().all(|known| known.content != form.content) {
                forms.push(form);
            }
        }
    }
    Ok(forms)
}

fn wrong_token(files: &Files, key: &str) -> TextError {
    let name = if files.special.contains_key(key) && !config_holds_tokens(files) {
        "special_tokens_map.json"
    } else {
        "tokenizer_config.json"
    };
    broken(&files.folder.join(name), format!("`{key}` is not a token"))
}
