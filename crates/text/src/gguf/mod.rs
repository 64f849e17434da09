//! The tokenizer of a GGUF file. Its vocabulary stands in the file's metadata, which whoever opened the file hands over as plain
//! values; how text is cut stands there only by name.

mod byte_pairs;
mod pieces;

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::folder::{
    AddedTokens, FolderFacts, Place, SpecialToken, SpecialTokens, TokenForm, broken, template_of,
};
use crate::{TextError, Tokenizer};

/// What a GGUF file says of its tokenizer, under `tokenizer.ggml` where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufTokenizer {
    /// `model`: "gpt2" for pairs of bytes, "llama" for SentencePiece's pairs.
    pub model: String,
    /// `pre`: how text is cut before pairs of bytes are joined.
    pub pre: Option<String>,
    /// `tokens`: the vocabulary; a token's place is its id.
    pub tokens: Vec<String>,
    /// `scores`, by which pieces are joined.
    pub scores: Vec<f64>,
    /// `token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. All are normal where there are none.
    pub types: Vec<i64>,
    /// `merges`: two tokens with a space between them, in the order in which they are joined.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub beginning: Option<u32>,
    /// `eos_token_id`.
    pub end: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `padding_token_id`.
    pub padding: Option<u32>,
    /// `add_bos_token`: whether a text begins with the token of that role.
    pub add_beginning: Option<bool>,
    /// `add_eos_token`: whether a text ends with the token of that role.
    pub add_end: Option<bool>,
    /// `add_space_prefix`: whether pieces begin as if after a space.
    pub add_space: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl Tokenizer {
    /// The tokenizer that a GGUF file describes; `path` is the file, for errors.
    pub fn of_gguf(path: &Path, said: &GgufTokenizer) -> Result<Self, TextError> {
        let unsupported = |problem: String| TextError::UnsupportedTokenizer {
            path: path.to_owned(),
            problem,
        };
        said.check().map_err(|cause| broken(path, cause))?;
        let parts = match said.model.as_str() {
            "gpt2" => {
                let cut = byte_pairs::Cut::named(said.pre.as_deref()).map_err(unsupported)?;
                byte_pairs::parts(said, cut)
            }
            "llama" => pieces::parts(said),
            other => {
                return Err(unsupported(format!(
                    "tokenizer.ggml.model {other:?} is not supported; supported are gpt2, llama"
                )));
            }
        };
        let inner = parts.map_err(|cause| broken(path, cause))?.build(path)?;
        let mut tokenizer = Self::wrap(inner);
        tokenizer.set_facts(FolderFacts {
            special: said.special(),
            ..FolderFacts::default()
        });
        Ok(tokenizer)
    }
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl GgufTokenizer {
    /// Whether the parts fit each other.
    fn check(&self) -> Result<(), String> {
        let count = self.tokens.len();
        if count == 0 || u32::try_from(count).is_err() {
            return Err(format!("tokenizer.ggml.tokens has {count} tokens"));
        }
        let types = self.types.len();
        if types != 0 && types != count {
            return Err(format!(
                "tokenizer.ggml.token_type has {types} entries for {count} tokens"
            ));
        }
        self.types.iter().try_for_each(|it| kind(*it).map(drop))?;
        for (name, id) in self.roles() {
            if let Some(id) = id.filter(|id| *id as usize >= count) {
                return Err(format!(
                    "tokenizer.ggml.{name}_token_id {id} is outside the vocabulary of {count}"
                ));
            }
        }
        Ok(())
    }

    /// Ids by the names of their roles.
    fn roles(&self) -> [(&'static str, Option<u32>); 4] {
        [
            ("bos", self.beginning),
            ("eos", self.end),
            ("unknown", self.unknown),
            ("padding", self.padding),
        ]
    }

    fn text(&self, id: Option<u32>) -> Option<&str> {
        let token = self.tokens.get(id? as usize)?;
        Some(token.as_str())
    }

    fn special(&self) -> SpecialTokens {
        let token = |id: Option<u32>| {
            Some(SpecialToken {
                text: self.text(id)?.to_owned(),
                id: id?,
            })
        };
        SpecialTokens {
            beginning: token(self.beginning),
            end: token(self.end),
            unknown: token(self.unknown),
            padding: token(self.padding),
            ..SpecialTokens::default()
        }
    }

    /// The texts of the special tokens, by the names that chat templates use.
    pub(crate) fn role_texts(&self) -> Vec<(&'static str, String)> {
        let roles = [
            ("bos_token", self.beginning),
            ("eos_token", self.end),
            ("unk_token", self.unknown),
            ("pad_token", self.padding),
        ];
        let named = roles.into_iter();
        let named = named.filter_map(|(name, id)| Some((name, self.text(id)?.to_owned())));
        named.collect()
    }

    fn kind(&self, id: usize) -> Kind {
        let kind = self.types.get(id).map(|it| kind(*it));
        kind.and_then(Result::ok).unwrap_or(Kind::Normal)
    }

    /// Ids by token; each must be there once.
    fn vocabulary(&self) -> Result<HashMap<String, u32>, String> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (token, id) in self.tokens.iter().zip(0u32..) {
            if ids.insert(token.clone(), id).is_some() {
                return Err(format!(
                    "tokenizer.ggml.tokens has the token {token:?} twice"
                ));
            }
        }
        Ok(ids)
    }

    /// The tokens that are found in a text before it is cut: those that decoding leaves out, and user-defined ones.
    fn added(&self, vocabulary: &HashMap<String, u32>) -> AddedTokens {
        let mut added = AddedTokens::new(vocabulary.clone());
        for (id, token) in self.tokens.iter().enumerate() {
            let special = match self.kind(id) {
                Kind::Control | Kind::Unknown => true,
                Kind::UserDefined => false,
                Kind::Normal | Kind::Unused | Kind::Byte => continue,
            };
            added.add(TokenForm {
                special,
                ..TokenForm::special(token)
            });
        }
        added
    }

    /// What stands around a text; none where nothing does.
    fn around(&self, added: &AddedTokens, begins: bool) -> Result<Option<Value>, String> {
        let wanted = |flag: bool, name: &str, id: Option<u32>| {
            let missing = || {
                format!(
                    "a text should have its {name} token, but tokenizer.ggml.{name}_token_id is missing"
                )
            };
            flag.then(|| self.text(id).ok_or_else(missing)).transpose()
        };
        let begins = self.add_beginning.unwrap_or(begins);
        let beginning = wanted(begins, "bos", self.beginning)?;
        let end = wanted(self.add_end.unwrap_or(false), "eos", self.end)?;
        if beginning.is_none() && end.is_none() {
            return Ok(None);
        }
        let around = |text: &'static str, type_id: u32| {
            let mut places = Vec::new();
            places.extend(beginning.map(|token| Place(token, type_id)));
            places.push(Place(text, type_id));
            places.extend(end.map(|token| Place(token, type_id)));
            places
        };
        let mut pair = around("$A", 0);
        pair.extend(around("$B", 1));
        template_of(added, &around("$A", 0), &pair).map(Some)
    }
}

fn kind(number: i64) -> Result<Kind, String> {
    Ok(match number {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        other => {
            return Err(format!(
                "tokenizer.ggml.token_type has {other}; there are only 1 to 6"
            ));
        }
    })
}
