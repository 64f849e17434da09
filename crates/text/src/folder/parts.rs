//! The parts of a tokenizer.json that several arrangements share, as JSON: what stands around texts, and the whole file.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::added::AddedTokens;
use super::files::{Files, broken};
use crate::TextError;

/// The stand-in for a space in SentencePiece vocabularies.
pub(crate) const SPACE: &str = "▁";

/// All fields of a tokenizer.json.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) model: Value,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) post_processor: Value,
    pub(crate) decoder: Value,
    pub(crate) added: AddedTokens,
}

impl Parts {
    /// The tokenizer that a tokenizer.json with these parts would give; `path` is the file that the vocabulary is from.
    pub(crate) fn build(self, path: &Path) -> Result<tokenizers::Tokenizer, TextError> {
        let added = self.added.to_json();
        let whole = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer, "post_processor": self.post_processor, "decoder": self.decoder,
            "model": self.model,
        });
        let bytes = serde_json::to_vec(&whole).map_err(|error| broken(path, error.to_string()))?;
        tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| broken(path, error.to_string()))
    }
}

/// One place of a template: a text (`$A` or `$B`) or a special token, and its type id.
pub(crate) struct Place<'token>(pub(crate) &'token str, pub(crate) u32);

/// What stands around one text and around two.
pub(super) fn template(
    files: &Files,
    added: &AddedTokens,
    single: &[Place],
    pair: &[Place],
) -> Result<Value, TextError> {
    template_of(added, single, pair).map_err(|cause| files.undecided(cause))
}

/// The same of a vocabulary alone; the error says which token it lacks.
pub(crate) fn template_of(
    added: &AddedTokens,
    single: &[Place],
    pair: &[Place],
) -> Result<Value, String> {
    let mut tokens = Map::new();
    for Place(token, _) in single.iter().chain(pair) {
        if token.starts_with('$') {
            continue;
        }
        let missing = || format!("the special token {token:?} is not in the vocabulary");
        let id = added.id(token).ok_or_else(missing)?;
        tokens.insert(
            (*token).to_owned(),
            json!({"id": token, "ids": [id], "tokens": [token]}),
        );
    }
    let place = |Place(name, type_id): &Place| match *name {
        "$A" => json!({"Sequence": {"id": "A", "type_id": type_id}}),
        "$B" => json!({"Sequence": {"id": "B", "type_id": type_id}}),
        token => json!({"SpecialToken": {"id": token, "type_id": type_id}}),
    };
    let places = |places: &[Place]| -> Value { places.iter().map(place).collect() };
    Ok(
        json!({"type": "TemplateProcessing", "single": places(single), "pair": places(pair), "special_tokens": tokens}),
    )
}

/// `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, the second text with the type id 1.
pub(super) fn class_and_separators(
    files: &Files,
    added: &AddedTokens,
    class: &str,
    separator: &str,
) -> Result<Value, TextError> {
    let single = [Place(class, 0), Place("$A", 0), Place(separator, 0)];
    let pair = [
        Place(class, 0),
        Place("$A", 0),
        Place(separator, 0),
        Place("$B", 1),
        Place(separator, 1),
    ];
    template(files, added, &single, &pair)
}
