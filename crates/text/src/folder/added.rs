//! Tokens beside the model's own vocabulary: which there are, how they are found in text, and which ids they get.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::files::{Files, broken};
use super::roles::{Roles, TokenForm, config_holds_tokens};
use crate::TextError;

/// The added tokens of a tokenizer under construction.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    /// Ids of the model's vocabulary, then also those of the added tokens.
    ids: HashMap<String, u32>,
    forms: Vec<TokenForm>,
    /// Where each token stands in `forms`.
    places: HashMap<String, usize>,
    next: u32,
}

impl AddedTokens {
    /// Nothing added yet to a vocabulary whose ids are 0, 1, 2 and so on.
    pub(crate) fn new(vocabulary: HashMap<String, u32>) -> Self {
        Self {
            next: vocabulary.len() as u32,
            ids: vocabulary,
            forms: Vec::new(),
            places: HashMap::new(),
        }
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Adds a token; its id is its id in the vocabulary, or else the next one.
    ///
    /// As in the `tokenizers` crate, a token that is added again is found by the new rules, except that it stays with the
    /// raw or the normalized text as it was.
    pub(crate) fn add(&mut self, form: TokenForm) {
        if form.content.is_empty() {
            return;
        }
        if !self.ids.contains_key(&form.content) {
            self.ids.insert(form.content.clone(), self.next);
            self.next += 1;
        }
        match self.places.get(&form.content) {
            Some(&place) => {
                let known = &mut self.forms[place];
                let normalized = if known.special {
                    known.normalized
                } else {
                    form.normalized
                };
                *known = TokenForm { normalized, ..form };
            }
            None => {
                self.places.insert(form.content.clone(), self.forms.len());
                self.forms.push(form);
            }
        }
    }

    /// The tokens that were added.
    pub(super) fn forms(&self) -> &[TokenForm] {
        &self.forms
    }

    /// Adds a token unless it has been added before.
    fn add_if_new(&mut self, form: &TokenForm) {
        if !self.places.contains_key(&form.content) {
            self.add(form.clone());
        }
    }

    /// Adds what the folder lists, then the special tokens that are still missing.
    pub(super) fn add_from_folder(
        &mut self,
        files: &Files,
        roles: &Roles,
    ) -> Result<(), TextError> {
        for (id, mut form) in listed(files, roles)? {
            let all = roles.forms.iter().flatten().chain(&roles.additional);
            form.special |= all
                .map(|form| &form.content)
                .any(|text| *text == form.content);
            let content = form.content.clone();
            self.add(form);
            let found = self.ids.get(&content).copied();
            if found != Some(id) {
                let found = found.map_or("none".to_owned(), |found| found.to_string());
                let cause = format!(
                    "the added token {content:?} should have the id {id}, but its place in the vocabulary is {found}"
                );
                return Err(files.undecided(cause));
            }
        }
        for form in roles.forms.iter().flatten().chain(&roles.additional) {
            self.add_if_new(form);
        }
        Ok(())
    }

    /// The field `added_tokens` of tokenizer.json.
    pub(super) fn to_json(&self) -> Value {
        let mut rows: Vec<(u32, Value)> = self
            .forms
            .iter()
            .map(|form| {
                let id = self.ids[&form.content];
                let row = json!({
                    "id": id, "content": form.content, "single_word": form.single_word, "lstrip": form.left_strip,
                    "rstrip": form.right_strip, "normalized": form.normalized, "special": form.special,
                });
                (id, row)
            })
            .collect();
        rows.sort_by_key(|(id, _)| *id);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// The tokens of `added_tokens_decoder` in tokenizer_config.json, or else those of added_tokens.json, by their ids.
fn listed(files: &Files, roles: &Roles) -> Result<Vec<(u32, TokenForm)>, TextError> {
    let mut tokens = Vec::new();
    if config_holds_tokens(files) {
        let wrong = || files.broken_config("`added_tokens_decoder` does not map ids to tokens");
        let decoder = files.config["added_tokens_decoder"]
            .as_object()
            .ok_or_else(wrong)?;
        for (id, value) in decoder {
            let id = id.parse().map_err(|_| wrong())?;
            tokens.push((id, TokenForm::of_object(value).ok_or_else(wrong)?));
        }
    } else {
        for (content, id) in &files.added {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let path = files.folder.join("added_tokens.json");
            let id = id.ok_or_else(|| {
                broken(
                    &path,
                    format!("the id of {content:?} is not a whole number"),
                )
            })?;
            let special = roles.given.contains(content);
            let normalized = !special;
            tokens.push((
                id,
                TokenForm {
                    normalized,
                    special,
                    ..TokenForm::special(content)
                },
            ));
        }
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens)
}
