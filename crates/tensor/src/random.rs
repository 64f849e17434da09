//! Randomness as a function of (purpose, seed, step, site), never a state: a resumed run draws what the first would have drawn.

use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// What random numbers are drawn for; each purpose has its own streams. The numbers stay as they are when others are added:
/// what a model drew is a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The first values of the weights.
    Weights = 0,
    /// What a pass drops.
    Dropout = 1,
    /// Who meets whom in an attention whose pattern is drawn.
    Pattern = 2,
    /// Numbers of a model that are drawn once and never trained.
    Frozen = 3,
}

/// Hands out one generator per site of a pass, in the order in which the sites ask.
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

    /// Independent normal numbers around zero for the next site, without end. Box and Muller 1958: two uniform numbers give
    /// two normal ones.
    pub fn next_normal(&mut self, deviation: f64) -> impl Iterator<Item = f64> + use<> {
        let mut generator = self.next_generator();
        std::iter::repeat_with(move || {
            let radius = (-2.0 * (1.0 - generator.random::<f64>()).ln()).sqrt() * deviation;
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
    fn the_same_key_draws_the_same_numbers_and_another_key_others() {
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
