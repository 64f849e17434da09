//! Windows of token ids for training and evaluation, and the unigram entropy to compare losses with.

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// `count` windows of `length + 1` ids at random offsets: inputs are the first `length` ids, targets the last.
///
/// The offsets are a pure function of (seed, index, row), so that a resumed run sees the same batches.
///
/// # Panics
/// If `tokens` is shorter than one window; see [`SplitTokens::require_windows`](crate::SplitTokens::require_windows).
pub fn training_windows(
    tokens: &[u32],
    seed: u64,
    index: u64,
    count: usize,
    length: usize,
) -> Vec<&[u32]> {
    assert!(
        tokens.len() > length,
        "training_windows: {} tokens are fewer than one window of {length} + 1",
        tokens.len()
    );
    let last = (tokens.len() - length - 1) as u64;
    let window = |row| {
        let start = generator(seed, index, row).random_range(0..=last) as usize;
        &tokens[start..=start + length]
    };
    (0..count as u64).map(window).collect()
}

/// Up to `count` disjoint windows of `length + 1` ids, evenly spaced from the first to the last id; the same on every
/// call. Fewer if there are not enough tokens.
pub fn held_out_windows(tokens: &[u32], count: usize, length: usize) -> Vec<&[u32]> {
    let size = length + 1;
    let count = count.min(tokens.len() / size);
    let last = tokens.len().saturating_sub(size);
    let start = |row: usize| {
        if count > 1 {
            row * last / (count - 1)
        } else {
            0
        }
    };
    (0..count)
        .map(|row| &tokens[start(row)..start(row) + size])
        .collect()
}

/// Entropy in nats of the unigram distribution of `tokens`: the loss of a model that only knows token frequencies.
/// Zero for no tokens.
///
/// # Panics
/// If an id is not below `vocabulary`.
pub fn unigram_entropy(tokens: &[u32], vocabulary: usize) -> f64 {
    let mut counts = vec![0u64; vocabulary];
    for &token in tokens {
        counts[token as usize] += 1;
    }
    let total = tokens.len() as f64;
    let probabilities = counts
        .into_iter()
        .filter(|count| *count > 0)
        .map(|count| count as f64 / total);
    probabilities
        .map(|probability| -probability * probability.ln())
        .sum()
}

/// The last byte of the generator's key, for domain separation: windows must not share random numbers with other uses of
/// the seed (weights and dropout: 0, sampling: 2).
const DOMAIN: u8 = 1;

/// A generator keyed by three numbers, so that there is no state between calls.
fn generator(seed: u64, index: u64, row: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&index.to_le_bytes());
    key[16..24].copy_from_slice(&row.to_le_bytes());
    key[31] = DOMAIN;
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_near};
    use proptest::prelude::*;

    #[test]
    fn training_windows_depend_only_on_seed_index_and_row() {
        let tokens: Vec<u32> = (0..10_000).collect();
        let batch = training_windows(&tokens, 1, 5, 8, 16);
        assert_eq!(batch, training_windows(&tokens, 1, 5, 8, 16));
        assert_eq!(batch[..3], training_windows(&tokens, 1, 5, 3, 16));
        assert_ne!(batch, training_windows(&tokens, 1, 6, 8, 16));
        assert_ne!(batch, training_windows(&tokens, 2, 5, 8, 16));
        // The exact offsets are part of the contract: a change would break resumed runs.
        let starts: Vec<u32> = batch.iter().map(|window| window[0]).collect();
        insta::assert_debug_snapshot!("training_window_starts", starts);
    }

    #[test]
    fn a_window_may_span_all_tokens() {
        assert_eq!(training_windows(&[1, 2, 3], 0, 0, 1, 2), [[1, 2, 3]]);
        assert_eq!(held_out_windows(&[1, 2, 3], 5, 2), [[1, 2, 3]]);
        assert!(held_out_windows(&[1, 2, 3], 5, 3).is_empty());
    }

    #[test]
    fn entropy_of_known_distributions() {
        assert_eq!(unigram_entropy(&[], 4), 0.0);
        assert_eq!(unigram_entropy(&[3, 3, 3], 4), 0.0);
        let entropy = unigram_entropy(&[0, 1, 2, 3], 4);
        assert_near("entropy", entropy, 4f64.ln(), Scale::One, 1e-12);
    }

    proptest! {
        #[test]
        fn held_out_windows_are_spaced_and_disjoint(tokens in 0usize..500, count in 0usize..20, length in 1usize..40) {
            let tokens: Vec<u32> = (0..tokens as u32).collect();
            let windows = held_out_windows(&tokens, count, length);
            prop_assert_eq!(windows.len(), count.min(tokens.len() / (length + 1)));
            for pair in windows.windows(2) {
                prop_assert!(pair[0][length] < pair[1][0]);
            }
            if windows.len() > 1 {
                prop_assert_eq!(windows[0].first(), tokens.first());
                prop_assert_eq!(windows[windows.len() - 1].last(), tokens.last());
            }
        }
    }
}
