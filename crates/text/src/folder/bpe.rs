//! Builds byte-level BPE tokenizers from vocab.json and merges.txt. Radford et al. 2019, Liu et al. 2019.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Deserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::{Value, json};

use super::added_tokens::AddedTokens;
use super::classes::Family;
use super::files::{Files, broken, read_bytes_if_exists, read_text_if_exists, unsupported};
use super::special_tokens::ConfiguredTokens;
use super::tokenizer_json::{TemplatePart, TokenizerJson, template};
use crate::TextError;

pub(super) fn build(
    files: &Files,
    special_tokens: &ConfiguredTokens,
    family: Family,
    path: &Path,
) -> Result<tokenizers::Tokenizer, TextError> {
    let vocabulary = read_vocabulary(path)?;
    let merges = read_merges(&path.with_file_name("merges.txt"), &vocabulary)?;
    let prefix_space = files.flag("add_prefix_space")?.unwrap_or(false);
    let mut added_tokens = AddedTokens::new(vocabulary.clone());
    added_tokens.add_from_folder(files, special_tokens)?;
    let byte_level = |prefix_space: bool, trim: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": trim, "use_regex": true});
    let post_processor = match family {
        Family::Roberta => roberta_processing(files, special_tokens, &added_tokens, prefix_space)?,
        _ if files.flag("add_bos_token")? == Some(true) => {
            let bos = required_token(files, special_tokens, "bos_token")?;
            let single = [TemplatePart(bos, 0), TemplatePart("$A", 0)];
            let pair = [
                TemplatePart(bos, 0),
                TemplatePart("$A", 0),
                TemplatePart("$B", 1),
            ];
            template(files, &added_tokens, &single, &pair)?
        }
        _ => byte_level(true, false),
    };
    let tokenizer_json = TokenizerJson {
        model: json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges}),
        normalizer: Value::Null,
        pre_tokenizer: byte_level(prefix_space, true),
        post_processor,
        decoder: byte_level(true, true),
        added_tokens,
    };
    tokenizer_json.build(path)
}

/// `<s> A </s>` and `<s> A </s></s> B </s>`, all with type id 0.
fn roberta_processing(
    files: &Files,
    special_tokens: &ConfiguredTokens,
    added_tokens: &AddedTokens,
    prefix_space: bool,
) -> Result<Value, TextError> {
    let token = |key: &str| {
        let text = required_token(files, special_tokens, key)?;
        let missing = || {
            files.ambiguous(format!(
                "the special token {text:?} is not in the vocabulary"
            ))
        };
        Ok((text.to_owned(), added_tokens.id(text).ok_or_else(missing)?))
    };
    let (cls, sep) = (token("cls_token")?, token("sep_token")?);
    let trim = files.flag("trim_offsets")?.unwrap_or(true);
    Ok(
        json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": trim,
        "add_prefix_space": prefix_space}),
    )
}

fn required_token<'special_tokens>(
    files: &Files,
    special_tokens: &'special_tokens ConfiguredTokens,
    key: &str,
) -> Result<&'special_tokens str, TextError> {
    special_tokens.text(key).ok_or_else(|| {
        files.ambiguous(format!(
            "`{key}` is null, but the tokenizer adds it to every text"
        ))
    })
}

/// Reads vocab.json.
pub(super) fn read_vocabulary(path: &Path) -> Result<HashMap<String, u32>, TextError> {
    let bytes = read_bytes_if_exists(path)?.unwrap_or_default();
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let vocabulary = reader
        .deserialize_map(DistinctTokens)
        .and_then(|tokens| reader.end().map(|()| tokens));
    let vocabulary = vocabulary.map_err(|error| broken(path, error.to_string()))?;
    let ids: HashSet<u32> = vocabulary.values().copied().collect();
    let largest = ids.iter().max().map_or(0, |id| *id as usize + 1);
    if vocabulary.is_empty() || ids.len() != vocabulary.len() {
        return Err(broken(path, "its ids are not 0, 1, 2 and so on, each once"));
    }
    if largest != ids.len() {
        // Added tokens get the ids after these.
        let problem = format!(
            "a vocabulary with gaps ({} ids, and the largest is {}) is not supported without a tokenizer.json; add it",
            ids.len(),
            largest - 1
        );
        return Err(unsupported(path, problem));
    }
    Ok(vocabulary)
}

/// A JSON object of ids. Parsers commonly keep the last of duplicate keys, which would silently lose a token.
struct DistinctTokens;

impl<'de> Visitor<'de> for DistinctTokens {
    type Value = HashMap<String, u32>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object that maps tokens to ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tokens = HashMap::new();
        while let Some((token, id)) = map.next_entry::<String, u32>()? {
            if tokens.insert(token.clone(), id).is_some() {
                return Err(A::Error::custom(format!(
                    "the token {token:?} is in it twice"
                )));
            }
        }
        Ok(tokens)
    }
}

fn read_merges(
    path: &Path,
    vocabulary: &HashMap<String, u32>,
) -> Result<Vec<[String; 2]>, TextError> {
    let missing = || TextError::MissingFile {
        path: path.to_owned(),
    };
    let text = read_text_if_exists(path)?.ok_or_else(missing)?;
    let mut lines = text
        .strip_suffix('\n')
        .unwrap_or(&text)
        .split('\n')
        .enumerate();
    // Hugging Face skips the first line unchecked; here it must be the header.
    if !lines
        .next()
        .is_some_and(|(_, line)| line.starts_with("#version"))
    {
        return Err(broken(path, "its first line is not `#version: ...`"));
    }
    let mut seen = HashSet::new();
    let mut merges = Vec::new();
    for (index, line) in lines {
        let invalid = |what: &str| broken(path, format!("line {} {what}", index + 1));
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (left, right) = line
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            .ok_or_else(|| invalid("is not two tokens with a space between them"))?;
        let known = |token: &str| vocabulary.contains_key(token);
        if !known(left) || !known(right) || !known(&format!("{left}{right}")) {
            return Err(invalid("joins tokens that are not in vocab.json"));
        }
        if !seen.insert((left, right)) {
            return Err(invalid("repeats an earlier line"));
        }
        merges.push([left.to_owned(), right.to_owned()]);
    }
    Ok(merges)
}
