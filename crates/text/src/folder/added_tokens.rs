//! Added tokens: their ids, and how they are matched in text.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::files::{Files, broken};
use super::special_tokens::{AddedToken, ConfiguredTokens, has_added_tokens_decoder};
use crate::TextError;

/// The added tokens of a tokenizer under construction.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    /// Ids of the vocabulary and of the added tokens.
    ids: HashMap<String, u32>,
    tokens: Vec<AddedToken>,
    /// The index of each token in `tokens`.
    indices: HashMap<String, usize>,
    next: u32,
}

impl AddedTokens {
    /// No tokens added yet to a vocabulary of ids 0, 1, 2 and so on.
    pub(crate) fn new(vocabulary: HashMap<String, u32>) -> Self {
        Self {
            next: vocabulary.len() as u32,
            ids: vocabulary,
            tokens: Vec::new(),
            indices: HashMap::new(),
        }
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Adds a token; its id is that of the vocabulary, or else the next free one.
    ///
    /// As in the `tokenizers` crate, adding a token again replaces its settings, except `normalized`.
    pub(crate) fn add(&mut self, token: AddedToken) {
        if token.content.is_empty() {
            return;
        }
        if !self.ids.contains_key(&token.content) {
            self.ids.insert(token.content.clone(), self.next);
            self.next += 1;
        }
        match self.indices.get(&token.content) {
            Some(&index) => {
                let known = &mut self.tokens[index];
                let normalized = if known.special {
                    known.normalized
                } else {
                    token.normalized
                };
                *known = AddedToken {
                    normalized,
                    ..token
                };
            }
            None => {
                self.indices
                    .insert(token.content.clone(), self.tokens.len());
                self.tokens.push(token);
            }
        }
    }

    /// The added tokens.
    pub(super) fn tokens(&self) -> &[AddedToken] {
        &self.tokens
    }

    /// Adds a token unless it was added before.
    fn add_if_new(&mut self, token: &AddedToken) {
        if !self.indices.contains_key(&token.content) {
            self.add(token.clone());
        }
    }

    /// Adds the tokens listed in the folder, then the remaining special tokens.
    pub(super) fn add_from_folder(
        &mut self,
        files: &Files,
        special_tokens: &ConfiguredTokens,
    ) -> Result<(), TextError> {
        for (id, mut token) in listed_tokens(files, special_tokens)? {
            let all = special_tokens
                .tokens
                .iter()
                .flatten()
                .chain(&special_tokens.additional);
            token.special |= all
                .map(|token| &token.content)
                .any(|text| *text == token.content);
            let content = token.content.clone();
            self.add(token);
            let found = self.ids.get(&content).copied();
            if found != Some(id) {
                let found = found.map_or("none".to_owned(), |found| found.to_string());
                let cause = format!(
                    "the added token {content:?} should have the id {id}, but the vocabulary gives it {found}"
                );
                return Err(files.ambiguous(cause));
            }
        }
        for token in special_tokens
            .tokens
            .iter()
            .flatten()
            .chain(&special_tokens.additional)
        {
            self.add_if_new(token);
        }
        Ok(())
    }

    /// The field `added_tokens` of tokenizer.json.
    pub(super) fn to_json(&self) -> Value {
        let mut rows: Vec<(u32, Value)> = self
            .tokens
            .iter()
            .map(|token| {
                let id = self.ids[&token.content];
                let row = json!({
                    "id": id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
                    "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
                });
                (id, row)
            })
            .collect();
        rows.sort_by_key(|(id, _)| *id);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// The tokens of `added_tokens_decoder` in tokenizer_config.json, or else those of added_tokens.json, sorted by id.
fn listed_tokens(
    files: &Files,
    special_tokens: &ConfiguredTokens,
) -> Result<Vec<(u32, AddedToken)>, TextError> {
    let mut tokens = Vec::new();
    if has_added_tokens_decoder(files) {
        let wrong = || files.broken_config("`added_tokens_decoder` does not map ids to tokens");
        let decoder = files.config["added_tokens_decoder"]
            .as_object()
            .ok_or_else(wrong)?;
        for (id, value) in decoder {
            let id = id.parse().map_err(|_| wrong())?;
            tokens.push((id, AddedToken::from_json(value).ok_or_else(wrong)?));
        }
    } else {
        for (content, id) in &files.added_tokens {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let path = files.folder.join("added_tokens.json");
            let id = id.ok_or_else(|| {
                broken(
                    &path,
                    format!("the id of {content:?} is not a non-negative integer"),
                )
            })?;
            let special = special_tokens.configured.contains(content);
            let normalized = !special;
            tokens.push((
                id,
                AddedToken {
                    normalized,
                    special,
                    ..AddedToken::special(content)
                },
            ));
        }
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens)
}
