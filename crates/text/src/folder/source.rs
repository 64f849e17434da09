//! Builds Marian's tokenizer. A SentencePiece model of the source's language cuts texts; vocab.json, which both languages share,
//! has the ids, by the text of a piece.
//!
//! target.spm would cut texts of the target's language, which no model here is given; what is made is joined from the texts of
//! its pieces, for which vocab.json is enough.

use std::path::Path;

use serde_json::{Value, json};

use super::added::AddedTokens;
use super::byte_pairs::read_vocabulary;
use super::files::{Files, broken, bytes_if_there};
use super::parts::{Parts, Place, SPACE, template};
use super::roles::{Roles, TokenForm};
use super::spaces::replaced_characters;
use crate::sentence_piece::{Algorithm, Piece, PieceKind, PieceModel};
use crate::{TextError, Tokenizer};

const UNKNOWN: &str = "<unk>";

pub(super) fn build(files: &Files, roles: &Roles, path: &Path) -> Result<Tokenizer, TextError> {
    if files.flag("separate_vocabs")? == Some(true) {
        return Err(files.undecided(
            "`separate_vocabs` is true, and only vocabularies that both languages share can be read",
        ));
    }
    let vocabulary = read_vocabulary(path)?;
    if !vocabulary.contains_key(UNKNOWN) {
        return Err(broken(path, format!("it has no {UNKNOWN}")));
    }
    let mut added = AddedTokens::new(vocabulary.clone());
    added.add_from_folder(files, roles)?;
    let reading = reading(files, &added)?;
    let writing = Parts {
        model: json!({"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN}),
        normalizer: Value::Null,
        pre_tokenizer: Value::Null,
        post_processor: Value::Null,
        decoder: json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "Fuse"}]}),
        added,
    };
    Ok(Tokenizer::of_two(reading, writing.build(path)?, UNKNOWN))
}

/// What cuts a text into pieces, whose ids mean nothing, exactly as SentencePiece does.
fn reading(files: &Files, folder: &AddedTokens) -> Result<tokenizers::Tokenizer, TextError> {
    let path = files.folder.join("source.spm");
    let bytes = bytes_if_there(&path)?
        .ok_or_else(|| files.undecided("its tokenizer needs a source.spm, which is not there"))?;
    let model = PieceModel::read(&bytes).map_err(|cause| broken(&path, cause))?;
    if model.algorithm != Algorithm::Unigram || !model.dummy_prefix {
        return Err(broken(
            &path,
            "it is no unigram model that puts a space before the text, as all of Marian are",
        ));
    }
    // Control pieces are never found in a text.
    let is_found =
        |piece: &&Piece| matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined);
    let found = model.pieces.iter().filter(is_found);
    let found = found.map(|piece| (piece.text.clone(), piece.score));
    let rows: Vec<(String, f64)> = [(UNKNOWN.to_owned(), 0.0)]
        .into_iter()
        .chain(found)
        .collect();
    let ids = rows.iter().map(|row| row.0.clone()).zip(0u32..).collect();
    let mut added = AddedTokens::new(ids);
    let defined = model.pieces.iter();
    for piece in defined.filter(|piece| piece.kind == PieceKind::UserDefined) {
        added.add(TokenForm {
            special: false,
            ..TokenForm::special(&piece.text)
        });
    }
    folder
        .forms()
        .iter()
        .cloned()
        .for_each(|form| added.add(form));
    let single = [Place("$A", 0), Place("</s>", 0)];
    let pair = [Place("$A", 0), Place("$B", 0), Place("</s>", 0)];
    let spaces = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content});
    let steps = replaced_characters(&model).into_iter();
    let steps = steps.chain([spaces("^ +| +$", ""), spaces(" {2,}", " ")]);
    let parts = Parts {
        model: json!({"type": "Unigram", "unk_id": 0, "vocab": rows, "byte_fallback": false}),
        normalizer: json!({"type": "Sequence", "normalizers": steps.collect::<Value>()}),
        pre_tokenizer: json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": false}),
        post_processor: template(files, &added, &single, &pair)?,
        decoder: Value::Null,
        added,
    };
    parts.build(&path)
}
