//! SentencePiece's pairs in GGUF files: pieces with scores, from which the merges follow.

use serde_json::json;

use super::{GgufTokenizer, Kind};
use crate::folder::{Parts, SPACE};
use crate::sentence_piece::{LONGEST_PIECE, Piece, PieceKind, merges};

pub(super) fn parts(said: &GgufTokenizer) -> Result<Parts, String> {
    let pieces = pieces(said)?;
    let vocabulary = said.vocabulary()?;
    let added = said.added(&vocabulary);
    let around = said.around(&added, true)?;
    let bytes = pieces.iter().any(|piece| piece.kind == PieceKind::Byte);
    // Without a space before it, the first word of a text would be another piece than the same word within it.
    let space = said.add_space.unwrap_or(true);
    let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let mut normalizers = vec![replace(" ", SPACE)];
    let mut decoders = vec![
        replace(SPACE, " "),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if space {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    Ok(Parts {
        model: json!({"type": "BPE", "dropout": null, "unk_token": unknown(said, &pieces), "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": bytes, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges(&pieces)}),
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: json!(null),
        post_processor: around.unwrap_or_default(),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        added,
    })
}

/// The piece that stands for what no other can express.
fn unknown(said: &GgufTokenizer, pieces: &[Piece]) -> Option<String> {
    let of_kind = || {
        let mut pieces = pieces.iter();
        pieces.find(|piece| piece.kind == PieceKind::Unknown)
    };
    let said = said.text(said.unknown).map(str::to_owned);
    said.or_else(|| of_kind().map(|piece| piece.text.clone()))
}

fn pieces(said: &GgufTokenizer) -> Result<Vec<Piece>, String> {
    let (tokens, scores) = (said.tokens.len(), said.scores.len());
    if scores != tokens {
        return Err(format!(
            "tokenizer.ggml.scores has {scores} entries for {tokens} tokens"
        ));
    }
    let piece = |(id, (text, score)): (usize, (&String, &f64))| {
        if text.is_empty() || text.len() > LONGEST_PIECE {
            return Err(format!(
                "tokenizer.ggml.tokens has a token of {} bytes; 1 to {LONGEST_PIECE} are allowed",
                text.len()
            ));
        }
        if !score.is_finite() {
            return Err(format!("tokenizer.ggml.scores has {score} for {text:?}"));
        }
        Ok(Piece {
            text: text.clone(),
            score: *score,
            kind: match said.kind(id) {
                Kind::Normal => PieceKind::Normal,
                Kind::Unknown => PieceKind::Unknown,
                Kind::Control => PieceKind::Control,
                Kind::UserDefined => PieceKind::UserDefined,
                Kind::Unused => PieceKind::Unused,
                Kind::Byte => PieceKind::Byte,
            },
        })
    };
    let rows = said.tokens.iter().zip(&said.scores);
    rows.enumerate().map(piece).collect()
}
