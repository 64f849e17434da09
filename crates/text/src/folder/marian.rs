//! Builds Marian's tokenizer: source.spm splits texts of the source language, and vocab.json, shared by both languages, maps
//! pieces to ids.
//!
//! target.spm would encode texts of the target language, which no model here needs. Decoding only needs vocab.json.

use std::path::Path;

use serde_json::{Value, json};

use super::added_tokens::AddedTokens;
use super::bpe::read_vocabulary;
use super::files::{Files, broken, read_bytes_if_exists, unsupported};
use super::metaspace::precompiled_charsmap;
use super::special_tokens::{AddedToken, ConfiguredTokens};
use super::tokenizer_json::{SPACE, TemplatePart, TokenizerJson, template};
use crate::sentence_piece::{Algorithm, Piece, PieceKind, SentencePieceModel};
use crate::{TextError, Tokenizer};

const UNKNOWN: &str = "<unk>";

pub(super) fn build(
    files: &Files,
    special_tokens: &ConfiguredTokens,
    path: &Path,
) -> Result<Tokenizer, TextError> {
    if files.flag("separate_vocabs")? == Some(true) {
        let problem = "`separate_vocabs` true is not supported; supported are shared vocabularies";
        let path = files.folder.join("tokenizer_config.json");
        return Err(unsupported(&path, problem));
    }
    let vocabulary = read_vocabulary(path)?;
    if !vocabulary.contains_key(UNKNOWN) {
        return Err(broken(path, format!("it has no {UNKNOWN}")));
    }
    let mut added_tokens = AddedTokens::new(vocabulary.clone());
    added_tokens.add_from_folder(files, special_tokens)?;
    let segmenter = segmenter(files, &added_tokens)?;
    let shared_vocabulary = TokenizerJson {
        model: json!({"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN}),
        normalizer: Value::Null,
        pre_tokenizer: Value::Null,
        post_processor: Value::Null,
        decoder: json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "Fuse"}]}),
        added_tokens,
    };
    Ok(Tokenizer::with_shared_vocabulary(
        segmenter,
        shared_vocabulary.build(path)?,
        UNKNOWN,
    ))
}

/// The tokenizer that splits text exactly as SentencePiece; its ids are meaningless.
fn segmenter(files: &Files, folder: &AddedTokens) -> Result<tokenizers::Tokenizer, TextError> {
    let path = files.folder.join("source.spm");
    let bytes = read_bytes_if_exists(&path)?
        .ok_or_else(|| files.ambiguous("its tokenizer needs a source.spm, which is missing"))?;
    let model = SentencePieceModel::read(&bytes).map_err(|problem| problem.of(&path))?;
    if model.algorithm != Algorithm::Unigram || !model.dummy_prefix {
        let problem = "only a unigram model with add_dummy_prefix is supported for Marian";
        return Err(unsupported(&path, problem));
    }
    // Control pieces never match text.
    let is_found =
        |piece: &&Piece| matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined);
    let found = model.pieces.iter().filter(is_found);
    let found = found.map(|piece| (piece.text.clone(), piece.score));
    let vocabulary_rows: Vec<(String, f64)> = [(UNKNOWN.to_owned(), 0.0)]
        .into_iter()
        .chain(found)
        .collect();
    let ids = vocabulary_rows
        .iter()
        .map(|row| row.0.clone())
        .zip(0u32..)
        .collect();
    let mut added_tokens = AddedTokens::new(ids);
    let defined = model.pieces.iter();
    for piece in defined.filter(|piece| piece.kind == PieceKind::UserDefined) {
        added_tokens.add(AddedToken {
            special: false,
            ..AddedToken::special(&piece.text)
        });
    }
    folder
        .tokens()
        .iter()
        .cloned()
        .for_each(|token| added_tokens.add(token));
    let single = [TemplatePart("$A", 0), TemplatePart("</s>", 0)];
    let pair = [
        TemplatePart("$A", 0),
        TemplatePart("$B", 0),
        TemplatePart("</s>", 0),
    ];
    let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content});
    let steps = precompiled_charsmap(&model).into_iter();
    let steps = steps.chain([replace("^ +| +$", ""), replace(" {2,}", " ")]);
    let tokenizer_json = TokenizerJson {
        model: json!({"type": "Unigram", "unk_id": 0, "vocab": vocabulary_rows, "byte_fallback": false}),
        normalizer: json!({"type": "Sequence", "normalizers": steps.collect::<Value>()}),
        pre_tokenizer: json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": false}),
        post_processor: template(files, &added_tokens, &single, &pair)?,
        decoder: Value::Null,
        added_tokens,
    };
    tokenizer_json.build(&path)
}
