//! Builds the tokenizer of a vocab.json with merges.txt: byte-level byte pairs. Radford et al. 2019, Liu et al. 2019.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Deserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::{Value, json};

use super::added::AddedTokens;
use super::classes::Arrangement;
use super::files::{Files, broken, bytes_if_there, text_if_there};
use super::parts::{Parts, Place, template};
use super::roles::Roles;
use crate::TextError;

pub(super) fn build(
    files: &Files,
    roles: &Roles,
    arrangement: Arrangement,
    path: &Path,
) -> Result<tokenizers::Tokenizer, TextError> {
    let vocabulary = read_vocabulary(path)?;
    let merges = read_merges(&path.with_file_name("merges.txt"), &vocabulary)?;
    let prefix_space = files.flag("add_prefix_space")?.unwrap_or(false);
    let mut added = AddedTokens::new(vocabulary.clone());
    added.add_from_folder(files, roles)?;
    let byte_level = |prefix_space: bool, trim: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": trim, "use_regex": true});
    let post_processor = match arrangement {
        Arrangement::BytePairsInside => inside(files, roles, &added, prefix_space)?,
        _ if files.flag("add_bos_token")? == Some(true) => {
            let beginning = needed(files, roles, "bos_token")?;
            let single = [Place(beginning, 0), Place("$A", 0)];
            let pair = [Place(beginning, 0), Place("$A", 0), Place("$B", 1)];
            template(files, &added, &single, &pair)?
        }
        _ => byte_level(true, false),
    };
    let parts = Parts {
        model: json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges}),
        normalizer: Value::Null,
        pre_tokenizer: byte_level(prefix_space, true),
        post_processor,
        decoder: byte_level(true, true),
        added,
    };
    parts.build(path)
}

/// `<s> A </s>` and `<s> A </s></s> B </s>`, all with the type id 0.
fn inside(
    files: &Files,
    roles: &Roles,
    added: &AddedTokens,
    prefix_space: bool,
) -> Result<Value, TextError> {
    let token = |key: &str| {
        let text = needed(files, roles, key)?;
        let missing = || {
            files.undecided(format!(
                "the special token {text:?} is not in the vocabulary"
            ))
        };
        Ok((text.to_owned(), added.id(text).ok_or_else(missing)?))
    };
    let (class, separator) = (token("cls_token")?, token("sep_token")?);
    let trim = files.flag("trim_offsets")?.unwrap_or(true);
    Ok(
        json!({"type": "RobertaProcessing", "sep": separator, "cls": class, "trim_offsets": trim,
        "add_prefix_space": prefix_space}),
    )
}

fn needed<'roles>(
    files: &Files,
    roles: &'roles Roles,
    key: &str,
) -> Result<&'roles str, TextError> {
    roles
        .text(key)
        .ok_or_else(|| files.undecided(format!("`{key}` is null, but it belongs around the text")))
}

/// The ids of vocab.json.
pub(super) fn read_vocabulary(path: &Path) -> Result<HashMap<String, u32>, TextError> {
    let bytes = bytes_if_there(path)?.unwrap_or_default();
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let vocabulary = reader
        .deserialize_map(DistinctTokens)
        .and_then(|tokens| reader.end().map(|()| tokens));
    let vocabulary = vocabulary.map_err(|error| broken(path, error.to_string()))?;
    let ids: HashSet<u32> = vocabulary.values().copied().collect();
    let largest = ids.iter().max().map_or(0, |id| *id as usize + 1);
    if vocabulary.is_empty() || ids.len() != vocabulary.len() || largest != ids.len() {
        // Tokens that are added later take the ids after these, so there must be no holes.
        return Err(broken(path, "its ids are not 0, 1, 2 and so on, each once"));
    }
    Ok(vocabulary)
}

/// A JSON object of ids. Parsers commonly keep the last of two equal keys, which would lose a token without a word.
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
    let text = text_if_there(path)?.ok_or_else(missing)?;
    let mut lines = text
        .strip_suffix('\n')
        .unwrap_or(&text)
        .split('\n')
        .enumerate();
    // Hugging Face drops the first line unseen; here it must be what it is taken for.
    if !lines
        .next()
        .is_some_and(|(_, line)| line.starts_with("#version"))
    {
        return Err(broken(path, "its first line is not `#version: ...`"));
    }
    let mut seen = HashSet::new();
    let mut merges = Vec::new();
    for (index, line) in lines {
        let wrong = |what: &str| broken(path, format!("line {} {what}", index + 1));
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (left, right) = line
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            .ok_or_else(|| wrong("is not two tokens with a space between them"))?;
        let known = |token: &str| vocabulary.contains_key(token);
        if !known(left) || !known(right) || !known(&format!("{left}{right}")) {
            return Err(wrong("joins tokens that are not in vocab.json"));
        }
        if !seen.insert((left, right)) {
            return Err(wrong("repeats an earlier line"));
        }
        merges.push([left.to_owned(), right.to_owned()]);
    }
    Ok(merges)
}
