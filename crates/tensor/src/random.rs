//! Stateless randomness: a function of (purpose, seed, step, site), so that a resumed run samples what the
//! uninterrupted one would have.

use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// What random numbers are for; each purpose has its own streams. The discriminants must not change: trained models depend on
/// what they sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Weight initialization.
    Weights = 0,
    /// Dropout.
    Dropout = 1,
    /// Random attention patterns.
    Pattern = 2,
    /// Random weights that are sampled once and never trained.
    Frozen = 3,
}

/// One generator per site of a pass, in the order of the requests.
#[derive(Clone, Debug)]
pub struct Randomness {
    purpose: Purpose,
    seed: u64,
    step: u64,
    site: u64,
}

impl Randomness {
    /// The randomness of one pass.
    pub fn new(purpose: Purpose, seed: u64, step: u64) -> Self {
        Self {
            purpose,
            seed,
            step,
            site: 0,
        }
    }

    /// The key of the next site, for generators that are functions of a key and an index.
    pub fn next_key(&mut self) -> [u32; 2] {
        let mut generator = self.next_generator();
        [generator.next_u32(), generator.next_u32()]
    }

    /// The generator of the next site.
    pub fn next_generator(&mut self) -> ChaCha8Rng {
        let mut key = [0u8; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&self.step.to_le_bytes());
        key[16..24].copy_from_slice(&self.site.to_le_bytes());
        key[24] = self.purpose as u8;
        self.site += 1;
        ChaCha8Rng::from_seed(key)
    }

    /// An endless stream of normal samples with mean zero for the next site. Box and Muller 1958.
    pub fn next_normal(&mut self, std: f64) -> impl Iterator<Item = f64> + use<> {
        let mut generator = self.next_generator();
        std::iter::repeat_with(move || {
            let radius = (-2.0 * (1.0 - generator.random::<f64>()).ln()).sqrt() * std;
            let (sine, cosine) = (std::f64::consts::TAU * generator.random::<f64>()).sin_cos();
            [radius * cosine, radius * sine]
        })
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_samples_the_same_numbers_and_another_key_others() {
        let draw = |seed, step, skip| {
            let mut randomness = Randomness::new(Purpose::Dropout, seed, step);
            for _ in 0..skip {
                randomness.next_generator();
            }
            randomness.next_generator().next_u64()
        };
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        let all = [
            draw(1, 2, 3),
            draw(0, 2, 3),
            draw(1, 0, 3),
            draw(1, 2, 0),
            draw(2, 1, 3),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }
}
