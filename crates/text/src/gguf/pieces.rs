//! SentencePiece BPE tokenizers of GGUF files: pieces with scores, which determine the merges.

use serde_json::json;

use super::{GgufTokenizer, TokenType};
use crate::folder::{SPACE, TokenizerJson};
use crate::sentence_piece::{MAX_PIECE_BYTES, Piece, PieceKind, merges};

pub(super) fn tokenizer_json(gguf: &GgufTokenizer) -> Result<TokenizerJson, String> {
    let pieces = pieces(gguf)?;
    let vocabulary = gguf.vocabulary()?;
    let added_tokens = gguf.added_tokens(&vocabulary);
    let post_processor = gguf.post_processor(&added_tokens, true)?;
    let bytes = pieces.iter().any(|piece| piece.kind == PieceKind::Byte);
    // With a prefix space, a word is the same piece at the start of a text and inside it.
    let space = gguf.add_space_prefix.unwrap_or(true);
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
    Ok(TokenizerJson {
        model: json!({"type": "BPE", "dropout": null, "unk_token": unknown(gguf, &pieces), "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": bytes, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges(&pieces)}),
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: json!(null),
        post_processor: post_processor.unwrap_or_default(),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        added_tokens,
    })
}

/// The unknown piece: by its id in the metadata, or else by its type.
fn unknown(gguf: &GgufTokenizer, pieces: &[Piece]) -> Option<String> {
    let by_type = || {
        let mut pieces = pieces.iter();
        pieces.find(|piece| piece.kind == PieceKind::Unknown)
    };
    let by_id = gguf.text(gguf.unknown_id).map(str::to_owned);
    by_id.or_else(|| by_type().map(|piece| piece.text.clone()))
}

fn pieces(gguf: &GgufTokenizer) -> Result<Vec<Piece>, String> {
    let (tokens, scores) = (gguf.tokens.len(), gguf.scores.len());
    if scores != tokens {
        return Err(format!(
            "tokenizer.ggml.scores has {scores} entries for {tokens} tokens"
        ));
    }
    let piece = |(id, (text, score)): (usize, (&String, &f64))| {
        if text.is_empty() || text.len() > MAX_PIECE_BYTES {
            return Err(format!(
                "tokenizer.ggml.tokens has a token of {} bytes; 1 to {MAX_PIECE_BYTES} are allowed",
                text.len()
            ));
        }
        if !score.is_finite() {
            return Err(format!("tokenizer.ggml.scores has {score} for {text:?}"));
        }
        Ok(Piece {
            text: text.clone(),
            score: *score,
            kind: match gguf.token_type(id) {
                TokenType::Normal => PieceKind::Normal,
                TokenType::Unknown => PieceKind::Unknown,
                TokenType::Control => PieceKind::Control,
                TokenType::UserDefined => PieceKind::UserDefined,
                TokenType::Unused => PieceKind::Unused,
                TokenType::Byte => PieceKind::Byte,
            },
        })
    };
    let rows = gguf.tokens.iter().zip(&gguf.scores);
    rows.enumerate().map(piece).collect()
}
