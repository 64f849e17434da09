//! The likeliest token at each step.

use burn::tensor::{Int, Tensor, TensorData};

use super::{Recurrent, RecurrentExtras, Sequences};

/// How a target is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greedy {
    /// What the decoder starts with; no part of the result.
    pub start: u32,
    /// What ends a target; the last of its tokens. Without one, only the number of tokens ends it.
    pub end: Option<u32>,
    /// The most tokens to make.
    pub most_tokens: usize,
}

impl Recurrent {
    /// The likeliest tokens after each source, each taken as if it were known: one list per row, with the end token where it
    /// came.
    ///
    /// # Panics
    /// When the start is not in the vocabulary, more tokens are asked for than the model's length, or the source does not fit.
    pub fn greedy(&self, source: &Sequences, settings: Greedy) -> Vec<Vec<u32>> {
        let Greedy {
            start,
            end,
            most_tokens,
        } = settings;
        let config = self.config();
        assert!(
            (start as usize) < config.target_vocabulary,
            "greedy: the start {start} is not in a vocabulary of {}",
            config.target_vocabulary
        );
        assert!(
            most_tokens <= config.length,
            "greedy: {most_tokens} tokens are more than the model's length of {}",
            config.length
        );
        let [batch, _] = source.ids.dims();
        let device = source.ids.device();
        let encoded = self.encode(source, RecurrentExtras::default());
        let mut state = encoded.first.clone();
        let mut made: Vec<Vec<u32>> = vec![Vec::new(); batch];
        let mut latest = vec![i64::from(start); batch];
        for _ in 0..most_tokens {
            let ids = TensorData::new(latest, [batch, 1]);
            let target = Sequences::new(Tensor::<2, Int>::from_data(ids, &device));
            let decoded = self.decode(&target, &encoded, state, RecurrentExtras::default());
            state = decoded.state;
            latest = best(decoded.words);
            let mut open = false;
            for (row, id) in made.iter_mut().zip(&latest) {
                // Rows that have ended are decoded with the others, and what they say is dropped.
                if end.is_some() && row.last().copied() == end {
                    continue;
                }
                let id = *id as u32;
                row.push(id);
                open |= Some(id) != end;
            }
            if !open {
                break;
            }
        }
        made
    }
}

/// The place of the best score of each row; of equal ones, the first.
fn best(words: Tensor<3>) -> Vec<i64> {
    let [_, _, vocabulary] = words.dims();
    let scores = words.into_data().try_to_vec::<f32>();
    let scores = scores.expect("scores are f32");
    let best_of = |row: &[f32]| {
        let better = |best: usize, place: usize| if row[place] > row[best] { place } else { best };
        (0..vocabulary).fold(0, better) as i64
    };
    scores.chunks(vocabulary).map(best_of).collect()
}
