//! Greedy decoding.

use burn::tensor::{Int, Tensor, TensorData};

use crate::{Recurrent, RecurrentOptions, Sequences};

/// Settings of greedy decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greedy {
    /// The first token of the decoder's input; not part of the result.
    pub decoder_start: u32,
    /// The end-of-sequence token, the last of a result. Without one, only the number of tokens ends it.
    pub eos: Option<u32>,
    /// The maximum number of tokens to generate.
    pub max_new_tokens: usize,
}

impl Recurrent {
    /// Greedy decoding of each source: one list of tokens per row, with eos if it was generated.
    ///
    /// # Panics
    /// When `decoder_start` is not in the vocabulary, `max_new_tokens` exceeds the model's length, or the source does not fit.
    pub fn greedy(&self, source: &Sequences, settings: Greedy) -> Vec<Vec<u32>> {
        let Greedy {
            decoder_start,
            eos,
            max_new_tokens,
        } = settings;
        let config = self.config();
        assert!(
            (decoder_start as usize) < config.target_vocabulary,
            "greedy: decoder_start {decoder_start} is not in a vocabulary of {}",
            config.target_vocabulary
        );
        assert!(
            max_new_tokens <= config.length,
            "greedy: {max_new_tokens} tokens are more than the model's length of {}",
            config.length
        );
        let [batch, _] = source.ids.dims();
        let device = source.ids.device();
        let encoded = self.encode(source, RecurrentOptions::default());
        let mut state = encoded.initial_state.clone();
        let mut generated: Vec<Vec<u32>> = vec![Vec::new(); batch];
        let mut latest = vec![i64::from(decoder_start); batch];
        for _ in 0..max_new_tokens {
            let ids = TensorData::new(latest, [batch, 1]);
            let target = Sequences::new(Tensor::<2, Int>::from_data(ids, &device));
            let decoded = self.decode(&target, &encoded, state, RecurrentOptions::default());
            state = decoded.state;
            latest = argmax(decoded.logits);
            let mut unfinished = false;
            for (row, id) in generated.iter_mut().zip(&latest) {
                // Finished rows are decoded with the others, and their tokens dropped.
                if eos.is_some() && row.last().copied() == eos {
                    continue;
                }
                let id = *id as u32;
                row.push(id);
                unfinished |= Some(id) != eos;
            }
            if !unfinished {
                break;
            }
        }
        generated
    }
}

/// The argmax of each row; of equal logits, the first.
fn argmax(logits: Tensor<3>) -> Vec<i64> {
    let [_, _, vocabulary] = logits.dims();
    let logits = logits.into_data().try_to_vec::<f32>();
    let logits = logits.expect("logits are f32");
    let argmax_of = |row: &[f32]| {
        let larger = |best: usize, id: usize| if row[id] > row[best] { id } else { best };
        (0..vocabulary).fold(0, larger) as i64
    };
    logits.chunks(vocabulary).map(argmax_of).collect()
}
