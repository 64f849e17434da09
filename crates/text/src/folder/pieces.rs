//! Builds tokenizers from SentencePiece models, as Hugging Face's converters do.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use super::added_tokens::AddedTokens;
use super::classes::Family;
use super::files::{Files, read_bytes_if_exists, unsupported};
use super::metaspace::{Metaspace, normalizer};
use super::special_tokens::{AddedToken, ConfiguredTokens};
use super::tokenizer_json::{TemplatePart, TokenizerJson, bert_template, template};
use crate::TextError;
use crate::sentence_piece::{Algorithm, Piece, PieceKind, SentencePieceModel, merges};

/// The default number of extra ids of T5.
const EXTRA_IDS: u32 = 100;
const MAX_EXTRA_IDS: u32 = 100_000;

pub(super) fn build(
    files: &Files,
    mut special_tokens: ConfiguredTokens,
    family: Family,
    path: &Path,
) -> Result<tokenizers::Tokenizer, TextError> {
    let bytes = read_bytes_if_exists(path)?.unwrap_or_default();
    let model = SentencePieceModel::read(&bytes).map_err(|problem| problem.of(path))?;
    let vocabulary_rows = vocabulary_rows(files, &mut special_tokens, family, &model, path)?;
    let ids: HashMap<String, u32> = vocabulary_rows
        .iter()
        .map(|row| row.0.clone())
        .zip(0u32..)
        .collect();
    if ids.len() != vocabulary_rows.len() {
        return Err(unsupported(
            path,
            "a model with a token that its tokenizer class adds is not supported without a tokenizer.json; add it",
        ));
    }
    let metaspace = Metaspace::read(files, family, &model)?;
    let mut added_tokens = AddedTokens::new(ids.clone());
    // SentencePiece matches control and user-defined pieces before splitting.
    for piece in &model.pieces {
        let special = piece.kind == PieceKind::Control;
        if special || piece.kind == PieceKind::UserDefined {
            added_tokens.add(AddedToken {
                special,
                ..AddedToken::special(&piece.text)
            });
        }
    }
    added_tokens.add_from_folder(files, &special_tokens)?;
    let tokenizer_json = TokenizerJson {
        model: model_json(family, &model, vocabulary_rows, ids)?,
        normalizer: normalizer(files, family, &model, &metaspace)?,
        pre_tokenizer: metaspace.pre_tokenizer(),
        post_processor: post_processor(files, &special_tokens, family, &added_tokens)?,
        decoder: metaspace.decoder(model.byte_fallback),
        added_tokens,
    };
    tokenizer_json.build(path)
}

/// Tokens and scores in the order of their ids, which some tokenizer classes change.
fn vocabulary_rows(
    files: &Files,
    special_tokens: &mut ConfiguredTokens,
    family: Family,
    model: &SentencePieceModel,
    path: &Path,
) -> Result<Vec<(String, f64)>, TextError> {
    let row = |piece: &Piece| (piece.text.clone(), piece.score);
    let row_zero = |text: &str| (text.to_owned(), 0.0);
    match family {
        Family::T5 => {
            let count = extra_ids(files, special_tokens)?;
            let extra = (0..count)
                .rev()
                .map(|index| row_zero(&format!("<extra_id_{index}>")));
            Ok(model.pieces.iter().map(row).chain(extra).collect())
        }
        Family::Albert => {
            // So that "3," is split as in training, unless there is no other segmentation.
            let penalized = |piece: &Piece| {
                (
                    piece.text.clone(),
                    piece.score
                        - if ends_in_digit_and_comma(&piece.text) {
                            100.0
                        } else {
                            0.0
                        },
                )
            };
            Ok(model.pieces.iter().map(penalized).collect())
        }
        Family::XlmRoberta => {
            let first: Vec<&str> = model
                .pieces
                .iter()
                .take(3)
                .map(|piece| piece.text.as_str())
                .collect();
            if first != ["<unk>", "<s>", "</s>"] {
                return Err(unsupported(
                    path,
                    "first pieces other than <unk>, <s> and </s> are not supported without a tokenizer.json; add it",
                ));
            }
            let remapped = ["<s>", "<pad>", "</s>", "<unk>"].into_iter().map(row_zero);
            Ok(remapped
                .chain(model.pieces[3..].iter().map(row))
                .chain([row_zero("<mask>")])
                .collect())
        }
        _ => Ok(model.pieces.iter().map(row).collect()),
    }
}

/// The number of extra ids, which also become special tokens.
fn extra_ids(files: &Files, special_tokens: &mut ConfiguredTokens) -> Result<u32, TextError> {
    let count = files.number("extra_ids")?.unwrap_or(EXTRA_IDS);
    if count > MAX_EXTRA_IDS {
        return Err(files.broken_config(format!(
            "`extra_ids` is {count}; at most {MAX_EXTRA_IDS} are allowed"
        )));
    }
    let named = special_tokens
        .additional
        .iter()
        .filter(|token| token.content.contains("<extra_id_"))
        .count();
    if named == 0 {
        special_tokens
            .additional
            .extend((0..count).map(|index| AddedToken::special(&format!("<extra_id_{index}>"))));
    } else if count > 0 && named != count as usize {
        return Err(files.ambiguous(format!(
            "there are {count} extra ids, but {named} are among the special tokens"
        )));
    }
    Ok(count)
}

/// Whether a piece ends in a digit and a comma, which ALBERT's tokenizer prefers to split. Pieces are normalized, so
/// their only numeric characters are digits.
fn ends_in_digit_and_comma(piece: &str) -> bool {
    let mut characters = piece.chars().rev();
    characters.next() == Some(',') && characters.next().is_some_and(char::is_numeric)
}

fn model_json(
    family: Family,
    model: &SentencePieceModel,
    vocabulary_rows: Vec<(String, f64)>,
    ids: HashMap<String, u32>,
) -> Result<Value, TextError> {
    let unknown = ids.get(&model.unknown_piece).copied();
    Ok(match model.algorithm {
        Algorithm::Unigram => {
            json!({"type": "Unigram", "unk_id": unknown, "vocab": vocabulary_rows, "byte_fallback": model.byte_fallback})
        }
        Algorithm::Bpe => {
            let pieces: Vec<Piece> = match family {
                Family::Llama => zero_special_scores(&model.pieces),
                _ => model.pieces.clone(),
            };
            json!({"type": "BPE", "dropout": null, "unk_token": model.unknown_piece, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": model.byte_fallback, "ignore_merges": false,
                "vocab": ids, "merges": merges(&pieces)})
        }
    })
}

/// Zeroes the scores of the first three pieces, which are special.
fn zero_special_scores(pieces: &[Piece]) -> Vec<Piece> {
    let score = |index: usize, piece: &Piece| if index < 3 { 0.0 } else { piece.score };
    pieces
        .iter()
        .enumerate()
        .map(|(index, piece)| Piece {
            score: score(index, piece),
            ..piece.clone()
        })
        .collect()
}

/// The special tokens around the text.
fn post_processor(
    files: &Files,
    special_tokens: &ConfiguredTokens,
    family: Family,
    added_tokens: &AddedTokens,
) -> Result<Value, TextError> {
    match family {
        Family::Albert | Family::BigBird => bert_template(files, added_tokens, "[CLS]", "[SEP]"),
        Family::T5 => {
            let single = [TemplatePart("$A", 0), TemplatePart("</s>", 0)];
            let pair = [
                TemplatePart("$A", 0),
                TemplatePart("</s>", 0),
                TemplatePart("$B", 0),
                TemplatePart("</s>", 0),
            ];
            template(files, added_tokens, &single, &pair)
        }
        Family::XlmRoberta => {
            let single = [
                TemplatePart("<s>", 0),
                TemplatePart("$A", 0),
                TemplatePart("</s>", 0),
            ];
            let pair = [
                TemplatePart("<s>", 0),
                TemplatePart("$A", 0),
                TemplatePart("</s>", 0),
                TemplatePart("</s>", 0),
                TemplatePart("$B", 0),
                TemplatePart("</s>", 0),
            ];
            template(files, added_tokens, &single, &pair)
        }
        Family::Llama => bos_and_eos(files, special_tokens, added_tokens),
        _ => Ok(Value::Null),
    }
}

/// `<s> A </s>` and `<s> A </s> <s> B </s>`, with bos and eos as configured.
fn bos_and_eos(
    files: &Files,
    special_tokens: &ConfiguredTokens,
    added_tokens: &AddedTokens,
) -> Result<Value, TextError> {
    let token_if = |flag: &str, default: bool, key: &str| {
        if !files.flag(flag)?.unwrap_or(default) {
            return Ok(None);
        }
        let missing = || files.ambiguous(format!("`{flag}` is true, but `{key}` is null"));
        special_tokens.text(key).map(Some).ok_or_else(missing)
    };
    let bos = token_if("add_bos_token", true, "bos_token")?;
    let eos = token_if("add_eos_token", false, "eos_token")?;
    let part = |text: &'static str, type_id: u32| {
        let mut parts = Vec::new();
        parts.extend(bos.map(|token| TemplatePart(token, type_id)));
        parts.push(TemplatePart(text, type_id));
        parts.extend(eos.map(|token| TemplatePart(token, type_id)));
        parts
    };
    let mut pair = part("$A", 0);
    pair.extend(part("$B", 1));
    template(files, added_tokens, &part("$A", 0), &pair)
}
