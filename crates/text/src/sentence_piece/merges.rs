//! The merges of a SentencePiece BPE model, which the file does not list: every pair of pieces that joins to a piece.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use super::Piece;

/// All pairs that join to a piece, by descending score. The order is the rank, so ties are broken as in Hugging Face's
/// converter: longer left parts first, then longer right parts, then by id.
pub(crate) fn merges(pieces: &[Piece]) -> Vec<[String; 2]> {
    let ids: HashMap<&str, usize> = pieces
        .iter()
        .enumerate()
        .map(|(id, piece)| (piece.text.as_str(), id))
        .collect();
    let mut found = Vec::new();
    for piece in pieces {
        let mut of_piece = Vec::new();
        for (cut, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(cut);
            if let (Some(left_id), Some(right_id)) = (ids.get(left), ids.get(right)) {
                of_piece.push((left_id, right_id, left, right));
            }
        }
        of_piece.sort_by_key(|(left_id, right_id, ..)| (**left_id, **right_id));
        let lengths = |left: &str, right: &str| (left.chars().count(), right.chars().count());
        found.extend(
            of_piece
                .into_iter()
                .map(|(_, _, left, right)| (piece.score, lengths(left, right), left, right)),
        );
    }
    // Stable, as in Python. Scores are finite, so they always compare; 0 and -0 are equal, as in Python.
    let by_score = |one: f64, other: f64| other.partial_cmp(&one).unwrap_or(Ordering::Equal);
    found.sort_by(|one, other| {
        by_score(one.0, other.0).then_with(|| Reverse(one.1).cmp(&Reverse(other.1)))
    });
    found
        .into_iter()
        .map(|(_, _, left, right)| [left.to_owned(), right.to_owned()])
        .collect()
}
