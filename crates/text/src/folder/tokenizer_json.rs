//! The fields of a tokenizer.json, and its template post-processors.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::added_tokens::AddedTokens;
use super::files::{Files, broken};
use crate::TextError;

/// The symbol for a space in SentencePiece vocabularies.
pub(crate) const SPACE: &str = "▁";

/// The fields of a tokenizer.json.
#[derive(Debug)]
pub(crate) struct TokenizerJson {
    pub(crate) model: Value,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) post_processor: Value,
    pub(crate) decoder: Value,
    pub(crate) added_tokens: AddedTokens,
}

impl TokenizerJson {
    /// Builds the tokenizer; `path` is the vocabulary file, for errors.
    pub(crate) fn build(self, path: &Path) -> Result<tokenizers::Tokenizer, TextError> {
        let added_tokens = self.added_tokens.to_json();
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added_tokens, "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer, "post_processor": self.post_processor, "decoder": self.decoder,
            "model": self.model,
        });
        let bytes = serde_json::to_vec(&json).map_err(|error| broken(path, error.to_string()))?;
        tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| broken(path, error.to_string()))
    }
}

/// An item of a template: a text (`$A` or `$B`) or a special token, with its type id.
pub(crate) struct TemplatePart<'token>(pub(crate) &'token str, pub(crate) u32);

/// A `TemplateProcessing` for single texts and pairs.
pub(super) fn template(
    files: &Files,
    added_tokens: &AddedTokens,
    single: &[TemplatePart],
    pair: &[TemplatePart],
) -> Result<Value, TextError> {
    template_of(added_tokens, single, pair).map_err(|cause| files.ambiguous(cause))
}

/// A `TemplateProcessing`; the error says which token is missing.
pub(crate) fn template_of(
    added_tokens: &AddedTokens,
    single: &[TemplatePart],
    pair: &[TemplatePart],
) -> Result<Value, String> {
    let mut tokens = Map::new();
    for TemplatePart(token, _) in single.iter().chain(pair) {
        if token.starts_with('$') {
            continue;
        }
        let missing = || format!("the special token {token:?} is not in the vocabulary");
        let id = added_tokens.id(token).ok_or_else(missing)?;
        tokens.insert(
            (*token).to_owned(),
            json!({"id": token, "ids": [id], "tokens": [token]}),
        );
    }
    let item = |TemplatePart(name, type_id): &TemplatePart| match *name {
        "$A" => json!({"Sequence": {"id": "A", "type_id": type_id}}),
        "$B" => json!({"Sequence": {"id": "B", "type_id": type_id}}),
        token => json!({"SpecialToken": {"id": token, "type_id": type_id}}),
    };
    let items = |items: &[TemplatePart]| -> Value { items.iter().map(item).collect() };
    Ok(
        json!({"type": "TemplateProcessing", "single": items(single), "pair": items(pair), "special_tokens": tokens}),
    )
}

/// `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, the second text with type id 1.
pub(super) fn bert_template(
    files: &Files,
    added_tokens: &AddedTokens,
    cls: &str,
    sep: &str,
) -> Result<Value, TextError> {
    let single = [
        TemplatePart(cls, 0),
        TemplatePart("$A", 0),
        TemplatePart(sep, 0),
    ];
    let pair = [
        TemplatePart(cls, 0),
        TemplatePart("$A", 0),
        TemplatePart(sep, 0),
        TemplatePart("$B", 1),
        TemplatePart(sep, 1),
    ];
    template(files, added_tokens, &single, &pair)
}
