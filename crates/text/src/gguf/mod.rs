//! The tokenizer of a GGUF file, built from its metadata. The vocabulary is in the file, the pre-tokenizer only by name.

mod bpe;
mod pieces;

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::folder::{
    AddedToken, AddedTokens, SpecialToken, SpecialTokens, TemplatePart, TokenizerSettings, broken,
    template_of, unsupported,
};
use crate::{TextError, Tokenizer};

/// The tokenizer metadata of a GGUF file; keys are below `tokenizer.ggml` unless stated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufTokenizer {
    /// `model`: "gpt2" for byte-level BPE, "llama" for SentencePiece BPE.
    pub model: String,
    /// `pre`: the name of the pre-tokenizer.
    pub pre: Option<String>,
    /// `tokens`: the vocabulary by id.
    pub tokens: Vec<String>,
    /// `scores` of SentencePiece.
    pub scores: Vec<f64>,
    /// `token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Empty means all normal.
    pub types: Vec<i64>,
    /// `merges`: two tokens separated by a space, in order of rank.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub bos_id: Option<u32>,
    /// `eos_token_id`.
    pub eos_id: Option<u32>,
    /// `unknown_token_id`.
    pub unknown_id: Option<u32>,
    /// `padding_token_id`.
    pub padding_id: Option<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file; `path` is the file, for errors.
    pub fn from_gguf(path: &Path, gguf: &GgufTokenizer) -> Result<Self, TextError> {
        // The type comes first: of another one, everything else may be different.
        let pre = match gguf.model.as_str() {
            "gpt2" => {
                let pre = bpe::PreTokenizer::named(gguf.pre.as_deref());
                Some(pre.map_err(|problem| unsupported(path, problem))?)
            }
            "llama" => None,
            other => {
                let problem = format!(
                    "tokenizer.ggml.model {other:?} is not supported; supported are gpt2, llama"
                );
                return Err(unsupported(path, problem));
            }
        };
        gguf.check().map_err(|cause| broken(path, cause))?;
        let tokenizer_json = match pre {
            Some(pre) => bpe::tokenizer_json(gguf, pre),
            None => pieces::tokenizer_json(gguf),
        };
        let inner = tokenizer_json
            .map_err(|cause| broken(path, cause))?
            .build(path)?;
        let mut tokenizer = Self::wrap(inner);
        tokenizer.set_settings(TokenizerSettings {
            special: gguf.special(),
            ..TokenizerSettings::default()
        });
        Ok(tokenizer)
    }
}

/// `llama_token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl GgufTokenizer {
    /// Checks the consistency of the fields.
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
        self.types
            .iter()
            .try_for_each(|it| token_type(*it).map(drop))?;
        for (name, id) in self.token_ids() {
            if let Some(id) = id.filter(|id| *id as usize >= count) {
                return Err(format!(
                    "tokenizer.ggml.{name}_token_id {id} is outside the vocabulary of {count}"
                ));
            }
        }
        Ok(())
    }

    /// Special token ids by key.
    fn token_ids(&self) -> [(&'static str, Option<u32>); 4] {
        [
            ("bos", self.bos_id),
            ("eos", self.eos_id),
            ("unknown", self.unknown_id),
            ("padding", self.padding_id),
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
            bos: token(self.bos_id),
            eos: token(self.eos_id),
            pad: token(self.padding_id),
            ..SpecialTokens::default()
        }
    }

    /// The special tokens by variable name, for chat templates.
    pub(crate) fn special_token_map(&self) -> Vec<(&'static str, String)> {
        let token_ids = [
            ("bos_token", self.bos_id),
            ("eos_token", self.eos_id),
            ("unk_token", self.unknown_id),
            ("pad_token", self.padding_id),
        ];
        let named = token_ids.into_iter();
        let named = named.filter_map(|(name, id)| Some((name, self.text(id)?.to_owned())));
        named.collect()
    }

    fn token_type(&self, id: usize) -> TokenType {
        let token_type = self.types.get(id).map(|it| token_type(*it));
        token_type.and_then(Result::ok).unwrap_or(TokenType::Normal)
    }

    /// Ids by token; duplicates are an error.
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

    /// The tokens that are matched before splitting: special and user-defined ones.
    fn added_tokens(&self, vocabulary: &HashMap<String, u32>) -> AddedTokens {
        let mut added_tokens = AddedTokens::new(vocabulary.clone());
        for (id, token) in self.tokens.iter().enumerate() {
            let special = match self.token_type(id) {
                TokenType::Control | TokenType::Unknown => true,
                TokenType::UserDefined => false,
                TokenType::Normal | TokenType::Unused | TokenType::Byte => continue,
            };
            added_tokens.add(AddedToken {
                special,
                ..AddedToken::special(token)
            });
        }
        added_tokens
    }

    /// The bos and eos tokens around the text, if any.
    fn post_processor(
        &self,
        added_tokens: &AddedTokens,
        add_bos: bool,
    ) -> Result<Option<Value>, String> {
        let token_if = |flag: bool, name: &str, id: Option<u32>| {
            let missing = || {
                format!(
                    "the tokenizer adds a {name} token, but tokenizer.ggml.{name}_token_id is missing"
                )
            };
            flag.then(|| self.text(id).ok_or_else(missing)).transpose()
        };
        let add_bos = self.add_bos.unwrap_or(add_bos);
        let bos = token_if(add_bos, "bos", self.bos_id)?;
        let eos = token_if(self.add_eos.unwrap_or(false), "eos", self.eos_id)?;
        if bos.is_none() && eos.is_none() {
            return Ok(None);
        }
        let template = |text: &'static str, type_id: u32| {
            let mut parts = Vec::new();
            parts.extend(bos.map(|token| TemplatePart(token, type_id)));
            parts.push(TemplatePart(text, type_id));
            parts.extend(eos.map(|token| TemplatePart(token, type_id)));
            parts
        };
        let mut pair = template("$A", 0);
        pair.extend(template("$B", 1));
        template_of(added_tokens, &template("$A", 0), &pair).map(Some)
    }
}

fn token_type(number: i64) -> Result<TokenType, String> {
    Ok(match number {
        1 => TokenType::Normal,
        2 => TokenType::Unknown,
        3 => TokenType::Control,
        4 => TokenType::UserDefined,
        5 => TokenType::Unused,
        6 => TokenType::Byte,
        other => {
            return Err(format!(
                "tokenizer.ggml.token_type has {other}; there are only 1 to 6"
            ));
        }
    })
}
