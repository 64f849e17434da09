//! Parses and validates SentencePiece models. Kudo and Richardson 2018.

mod charsmap;
mod merges;
mod protobuf;

use std::collections::HashMap;

use protobuf::{Field, Fields};

use crate::error::Problem;

pub(crate) use charsmap::check_charsmap;
pub(crate) use merges::merges;

/// Far above the largest vocabularies in use.
const MAX_PIECES: usize = 4_000_000;
/// Trainers default to 16 characters; finding merges is quadratic in this.
pub(crate) const MAX_PIECE_BYTES: usize = 2_048;

/// `SentencePiece.Type`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PieceKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Byte,
    Unused,
}

/// A vocabulary entry; its index is its id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) score: f64,
    pub(crate) kind: PieceKind,
}

/// `TrainerSpec.ModelType`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Algorithm {
    /// The most probable segmentation. Kudo 2018.
    Unigram,
    /// Byte pair encoding. Sennrich et al. 2016.
    Bpe,
}

/// The parts of a model file that tokenization needs.
#[derive(Clone, Debug)]
pub(crate) struct SentencePieceModel {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) algorithm: Algorithm,
    pub(crate) byte_fallback: bool,
    pub(crate) unknown: usize,
    pub(crate) unknown_piece: String,
    /// `precompiled_charsmap`, see [`check_charsmap`]; empty for none.
    pub(crate) charsmap: Vec<u8>,
    pub(crate) dummy_prefix: bool,
}

impl SentencePieceModel {
    /// Parses a file. The error says what is wrong with it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: Algorithm::Unigram,
            byte_fallback: false,
            unknown: 0,
            unknown_piece: "<unk>".to_owned(),
            charsmap: Vec::new(),
            dummy_prefix: true,
        };
        for field in Fields::new(bytes) {
            match field? {
                Field::Bytes(1, bytes) if model.pieces.len() < MAX_PIECES => {
                    model.pieces.push(piece(bytes)?)
                }
                Field::Bytes(1, _) => {
                    return Err(Problem::Unsupported(format!(
                        "more than {MAX_PIECES} pieces are not supported"
                    )));
                }
                Field::Bytes(2, bytes) => model.read_trainer(bytes)?,
                Field::Bytes(3, bytes) => model.read_normalizer(bytes)?,
                Field::Bytes(5, bytes) => refuse_denormalizer(bytes)?,
                // Self-test data and unknown fields.
                _ => {}
            }
        }
        model.check()?;
        Ok(model)
    }

    fn read_trainer(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        for field in Fields::new(bytes) {
            match field? {
                Field::Varint(3, 1) => self.algorithm = Algorithm::Unigram,
                Field::Varint(3, 2) => self.algorithm = Algorithm::Bpe,
                Field::Varint(3, kind) => {
                    let problem = |name| {
                        format!(
                            "its model type {kind} ({name}) is not supported; supported are unigram (1) and bpe (2)"
                        )
                    };
                    return Err(match kind {
                        3 => Problem::Unsupported(problem("word")),
                        4 => Problem::Unsupported(problem("char")),
                        _ => format!("its model type is {kind}; there are 1 to 4").into(),
                    });
                }
                Field::Varint(24, on) if on != 0 => {
                    return Err(Problem::Unsupported(
                        "it sets treat_whitespace_as_suffix, which is not supported".to_owned(),
                    ));
                }
                Field::Varint(35, on) => self.byte_fallback = on != 0,
                Field::Varint(40, id) => {
                    self.unknown =
                        usize::try_from(id).map_err(|_| "its unknown id is negative".to_owned())?;
                }
                Field::Bytes(45, bytes) => self.unknown_piece = text(bytes)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        for field in Fields::new(bytes) {
            match field? {
                Field::Bytes(2, bytes) => self.charsmap = bytes.to_vec(),
                Field::Varint(3, on) => self.dummy_prefix = on != 0,
                Field::Varint(5, 0) => {
                    return Err(Problem::Unsupported(
                        "it does not set escape_whitespaces, which is not supported".to_owned(),
                    ));
                }
                // remove_extra_whitespaces (4): Hugging Face's converters ignore it.
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let mut seen = HashMap::with_capacity(self.pieces.len());
        for (id, piece) in self.pieces.iter().enumerate() {
            if let Some(first) = seen.insert(piece.text.as_str(), id) {
                return Err(format!(
                    "the piece {:?} occurs twice, with ids {first} and {id}",
                    piece.text
                ));
            }
        }
        match self.pieces.get(self.unknown) {
            None => {
                return Err(format!(
                    "its unknown id {} is outside its {} pieces",
                    self.unknown,
                    self.pieces.len()
                ));
            }
            Some(piece) if piece.kind != PieceKind::Unknown || piece.text != self.unknown_piece => {
                return Err(format!(
                    "its unknown id {} is the piece {:?}",
                    self.unknown, piece.text
                ));
            }
            Some(_) => {}
        }
        check_charsmap(&self.charsmap)
    }
}

fn piece(bytes: &[u8]) -> Result<Piece, String> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: PieceKind::Normal,
    };
    for field in Fields::new(bytes) {
        match field? {
            Field::Bytes(1, bytes) => piece.text = text(bytes)?,
            Field::Float(2, score) => piece.score = f64::from(score),
            Field::Varint(3, kind) => piece.kind = piece_kind(kind)?,
            _ => {}
        }
    }
    if piece.text.is_empty() || piece.text.len() > MAX_PIECE_BYTES {
        return Err(format!(
            "a piece has {} bytes; 1 to {MAX_PIECE_BYTES} are allowed",
            piece.text.len()
        ));
    }
    if !piece.score.is_finite() {
        return Err(format!(
            "the score of the piece {:?} is not a finite number",
            piece.text
        ));
    }
    Ok(piece)
}

fn piece_kind(kind: u64) -> Result<PieceKind, String> {
    Ok(match kind {
        1 => PieceKind::Normal,
        2 => PieceKind::Unknown,
        3 => PieceKind::Control,
        4 => PieceKind::UserDefined,
        5 => PieceKind::Unused,
        6 => PieceKind::Byte,
        other => {
            return Err(format!(
                "a piece has the type {other}; supported are 1 to 6"
            ));
        }
    })
}

fn text(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| "a string in it is not UTF-8".to_owned())
}

fn refuse_denormalizer(bytes: &[u8]) -> Result<(), Problem> {
    for field in Fields::new(bytes) {
        if matches!(field?, Field::Bytes(2, rules) if !rules.is_empty()) {
            return Err(Problem::Unsupported(
                "it has a denormalizer_spec, which is not supported".to_owned(),
            ));
        }
    }
    Ok(())
}
