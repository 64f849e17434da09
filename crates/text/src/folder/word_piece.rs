//! Builds WordPiece tokenizers from vocab.txt. Devlin et al. 2019.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use super::added_tokens::AddedTokens;
use super::files::{Files, broken, read_text_if_exists};
use super::special_tokens::ConfiguredTokens;
use super::tokenizer_json::{TokenizerJson, bert_template};
use crate::TextError;

pub(super) fn build(
    files: &Files,
    special_tokens: &ConfiguredTokens,
    path: &Path,
) -> Result<tokenizers::Tokenizer, TextError> {
    let text = read_text_if_exists(path)?.unwrap_or_default();
    let vocabulary = read_vocabulary(path, &text)?;
    let role = |key: &str| {
        let missing = || files.ambiguous(format!("`{key}` is null, but a vocab.txt needs it"));
        special_tokens.text(key).ok_or_else(missing)
    };
    let unknown = role("unk_token")?;
    if !vocabulary.contains_key(unknown) {
        return Err(broken(
            path,
            format!("the unknown token {unknown:?} is not in it"),
        ));
    }
    let normalizer = normalizer(files, &vocabulary)?;
    let mut added_tokens = AddedTokens::new(vocabulary.clone());
    added_tokens.add_from_folder(files, special_tokens)?;
    let tokenizer_json = TokenizerJson {
        model: json!({"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary}),
        normalizer,
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        post_processor: bert_template(
            files,
            &added_tokens,
            role("cls_token")?,
            role("sep_token")?,
        )?,
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        added_tokens,
    };
    tokenizer_json.build(path)
}

fn read_vocabulary(path: &Path, text: &str) -> Result<HashMap<String, u32>, TextError> {
    let mut vocabulary = HashMap::new();
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    for (line, id) in lines.zip(0u32..) {
        let token = line.strip_suffix('\r').unwrap_or(line);
        if token.is_empty() {
            return Err(broken(path, format!("line {} is empty", id + 1)));
        }
        if let Some(first) = vocabulary.insert(token.to_owned(), id) {
            let cause = format!(
                "the token {token:?} is on line {} and again on line {}",
                first + 1,
                id + 1
            );
            return Err(broken(path, cause));
        }
    }
    Ok(vocabulary)
}

fn normalizer(files: &Files, vocabulary: &HashMap<String, u32>) -> Result<Value, TextError> {
    if files.flag("do_basic_tokenize")? == Some(false) {
        return Err(files.unsupported("`do_basic_tokenize` false"));
    }
    if files.config.get("never_split").is_some_and(|words| {
        words
            .as_array()
            .map_or(!words.is_null(), |words| !words.is_empty())
    }) {
        return Err(files.unsupported("a `never_split` that is not empty"));
    }
    let lowercase = match files.flag("do_lower_case")? {
        Some(lowercase) => lowercase,
        // The default would lower-case the text, and then never match words with capitals.
        None if vocabulary.keys().any(|token| has_capitals(token)) => {
            return Err(files.ambiguous(
                "vocab.txt has words with capital letters, and tokenizer_config.json does not set `do_lower_case`",
            ));
        }
        None => true,
    };
    Ok(json!({
        "type": "BertNormalizer", "clean_text": true, "lowercase": lowercase,
        "handle_chinese_chars": files.flag("tokenize_chinese_chars")?.unwrap_or(true),
        "strip_accents": files.flag("strip_accents")?,
    }))
}

/// Whether lower-casing changes a letter. It does not change ℝ, which uncased vocabularies have.
fn is_lowered(letter: char) -> bool {
    letter.is_uppercase() && !letter.to_lowercase().eq([letter])
}

/// Whether a token is a word with a capital letter, other than a special token in brackets.
fn has_capitals(token: &str) -> bool {
    !token.starts_with(['[', '<']) && token.chars().any(is_lowered)
}

#[cfg(test)]
mod tests {
    use super::has_capitals;

    #[test]
    fn capitals_are_letters_that_lower_casing_changes() {
        let found = [
            "the",
            "\u{211d}",
            "[UNK]",
            "The",
            "\u{c5}sa",
            "\u{414}\u{430}",
        ]
        .map(has_capitals);
        assert_eq!(found, [false, false, false, true, true, true]);
    }
}
