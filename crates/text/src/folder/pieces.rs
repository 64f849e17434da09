//! Builds the tokenizers of SentencePiece models, each arrangement as Hugging Face's converters have it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use super::added::AddedTokens;
use super::classes::Arrangement;
use super::files::{Files, broken, bytes_if_there};
use super::parts::{Parts, Place, class_and_separators, template};
use super::roles::{Roles, TokenForm};
use super::spaces::{Spaces, normalizer};
use crate::TextError;
use crate::sentence_piece::{Algorithm, Piece, PieceKind, PieceModel, merges};

/// Extra ids of T5 when the folder does not say how many.
const EXTRA_IDS: u32 = 100;
const MOST_EXTRA_IDS: u32 = 100_000;

pub(super) fn build(
    files: &Files,
    mut roles: Roles,
    arrangement: Arrangement,
    path: &Path,
) -> Result<tokenizers::Tokenizer, TextError> {
    let bytes = bytes_if_there(path)?.unwrap_or_default();
    let model = PieceModel::read(&bytes).map_err(|cause| broken(path, cause))?;
    let rows = rows(files, &mut roles, arrangement, &model, path)?;
    let ids: HashMap<String, u32> = rows.iter().map(|row| row.0.clone()).zip(0u32..).collect();
    if ids.len() != rows.len() {
        return Err(broken(
            path,
            "it holds a token that its arrangement adds again",
        ));
    }
    let spaces = Spaces::read(files, arrangement, &model)?;
    let mut added = AddedTokens::new(ids.clone());
    // SentencePiece finds control and user-defined pieces in the text before it cuts anything.
    for piece in &model.pieces {
        let special = piece.kind == PieceKind::Control;
        if special || piece.kind == PieceKind::UserDefined {
            added.add(TokenForm {
                special,
                ..TokenForm::special(&piece.text)
            });
        }
    }
    added.add_from_folder(files, &roles)?;
    let parts = Parts {
        model: cutting(arrangement, &model, rows, ids)?,
        normalizer: normalizer(files, arrangement, &model, &spaces)?,
        pre_tokenizer: spaces.pre_tokenizer(),
        post_processor: around(files, &roles, arrangement, &added)?,
        decoder: spaces.decoder(model.byte_fallback),
        added,
    };
    parts.build(path)
}

/// The tokens and scores in the order of their ids, which some arrangements change.
fn rows(
    files: &Files,
    roles: &mut Roles,
    arrangement: Arrangement,
    model: &PieceModel,
    path: &Path,
) -> Result<Vec<(String, f64)>, TextError> {
    let row = |piece: &Piece| (piece.text.clone(), piece.score);
    let row_zero = |text: &str| (text.to_owned(), 0.0);
    match arrangement {
        Arrangement::PiecesWithExtraIds => {
            let count = extra_ids(files, roles)?;
            let extra = (0..count)
                .rev()
                .map(|index| row_zero(&format!("<extra_id_{index}>")));
            Ok(model.pieces.iter().map(row).chain(extra).collect())
        }
        Arrangement::PiecesLowered => {
            // So that "3," is cut as it was when the model was trained, unless nothing else fits.
            let lowered = |piece: &Piece| {
                (
                    piece.text.clone(),
                    piece.score
                        - if ends_in_number(&piece.text) {
                            100.0
                        } else {
                            0.0
                        },
                )
            };
            Ok(model.pieces.iter().map(lowered).collect())
        }
        Arrangement::PiecesMoved => {
            let first: Vec<&str> = model
                .pieces
                .iter()
                .take(3)
                .map(|piece| piece.text.as_str())
                .collect();
            if first != ["<unk>", "<s>", "</s>"] {
                return Err(broken(
                    path,
                    "its first pieces are not <unk>, <s> and </s>, so its ids cannot be moved as they should be",
                ));
            }
            let moved = ["<s>", "<pad>", "</s>", "<unk>"].into_iter().map(row_zero);
            Ok(moved
                .chain(model.pieces[3..].iter().map(row))
                .chain([row_zero("<mask>")])
                .collect())
        }
        _ => Ok(model.pieces.iter().map(row).collect()),
    }
}

/// How many extra ids there are; they also become special tokens.
fn extra_ids(files: &Files, roles: &mut Roles) -> Result<u32, TextError> {
    let count = files.number("extra_ids")?.unwrap_or(EXTRA_IDS);
    if count > MOST_EXTRA_IDS {
        return Err(files.broken_config(format!(
            "`extra_ids` is {count}; at most {MOST_EXTRA_IDS} are allowed"
        )));
    }
    let named = roles
        .additional
        .iter()
        .filter(|form| form.content.contains("<extra_id_"))
        .count();
    if named == 0 {
        roles
            .additional
            .extend((0..count).map(|index| TokenForm::special(&format!("<extra_id_{index}>"))));
    } else if count > 0 && named != count as usize {
        return Err(files.undecided(format!(
            "there are {count} extra ids, but {named} are among the special tokens"
        )));
    }
    Ok(count)
}

/// Whether a piece is a number with a comma, for which ALBERT's tokenizer prefers two pieces. Pieces are normalized text,
/// which has no numeric characters but digits.
fn ends_in_number(piece: &str) -> bool {
    let mut characters = piece.chars().rev();
    characters.next() == Some(',') && characters.next().is_some_and(char::is_numeric)
}

fn cutting(
    arrangement: Arrangement,
    model: &PieceModel,
    rows: Vec<(String, f64)>,
    ids: HashMap<String, u32>,
) -> Result<Value, TextError> {
    let unknown = ids.get(&model.unknown_piece).copied();
    Ok(match model.algorithm {
        Algorithm::Unigram => {
            json!({"type": "Unigram", "unk_id": unknown, "vocab": rows, "byte_fallback": model.byte_fallback})
        }
        Algorithm::BytePairs => {
            let pieces: Vec<Piece> = match arrangement {
                Arrangement::PiecesAfterBeginning => first_scores_zero(&model.pieces),
                _ => model.pieces.clone(),
            };
            json!({"type": "BPE", "dropout": null, "unk_token": model.unknown_piece, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": model.byte_fallback, "ignore_merges": false,
                "vocab": ids, "merges": merges(&pieces)})
        }
    })
}

/// The first three pieces are special, whatever their scores are.
fn first_scores_zero(pieces: &[Piece]) -> Vec<Piece> {
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

/// What stands around the text.
fn around(
    files: &Files,
    roles: &Roles,
    arrangement: Arrangement,
    added: &AddedTokens,
) -> Result<Value, TextError> {
    match arrangement {
        Arrangement::PiecesLowered | Arrangement::PiecesInside => {
            class_and_separators(files, added, "[CLS]", "[SEP]")
        }
        Arrangement::PiecesWithExtraIds => {
            let single = [Place("$A", 0), Place("</s>", 0)];
            let pair = [
                Place("$A", 0),
                Place("</s>", 0),
                Place("$B", 0),
                Place("</s>", 0),
            ];
            template(files, added, &single, &pair)
        }
        Arrangement::PiecesMoved => {
            let single = [Place("<s>", 0), Place("$A", 0), Place("</s>", 0)];
            let pair = [
                Place("<s>", 0),
                Place("$A", 0),
                Place("</s>", 0),
                Place("</s>", 0),
                Place("$B", 0),
                Place("</s>", 0),
            ];
            template(files, added, &single, &pair)
        }
        Arrangement::PiecesAfterBeginning => after_beginning(files, roles, added),
        _ => Ok(Value::Null),
    }
}

/// `<s> A </s>` and `<s> A </s> <s> B </s>`, with only those of the two that the folder asks for.
fn after_beginning(files: &Files, roles: &Roles, added: &AddedTokens) -> Result<Value, TextError> {
    let wanted = |flag: &str, default: bool, key: &str| {
        if !files.flag(flag)?.unwrap_or(default) {
            return Ok(None);
        }
        let missing = || files.undecided(format!("`{flag}` is true, but `{key}` is null"));
        roles.text(key).map(Some).ok_or_else(missing)
    };
    let beginning = wanted("add_bos_token", true, "bos_token")?;
    let end = wanted("add_eos_token", false, "eos_token")?;
    let part = |text: &'static str, type_id: u32| {
        let mut places = Vec::new();
        places.extend(beginning.map(|token| Place(token, type_id)));
        places.push(Place(text, type_id));
        places.extend(end.map(|token| Place(token, type_id)));
        places
    };
    let mut pair = part("$A", 0);
    pair.extend(part("$B", 1));
    template(files, added, &part("$A", 0), &pair)
}
