//! Normal samples as PyTorch generates them on the CPU from a seed, up to the last bits: a Hugging Face config with a seed means
//! the rotations that PyTorch generates. Matsumoto and Nishimura 1998; Box and Muller 1958.

use std::f64::consts::TAU;

const STATE_WORDS: usize = 624;

/// PyTorch transforms groups of this many uniform samples at once.
const GROUP: usize = 16;

/// The first `count` standard normal samples after `torch.manual_seed(seed)`.
pub fn torch_normal(seed: u64, count: usize) -> Vec<f32> {
    let mut generator = MersenneTwister::new(seed as u32);
    let samples = match count < GROUP {
        true => in_pairs(&mut generator, count),
        false => in_groups(&mut generator, count),
    };
    samples.into_iter().map(|sample| sample as f32).collect()
}

/// A group has eight radii and then eight angles. If the last group is incomplete, the last sixteen samples are resampled.
fn in_groups(generator: &mut MersenneTwister, count: usize) -> Vec<f64> {
    let mut next = || f64::from(generator.next_word() & 0xff_ffff) / f64::from(1 << 24);
    let mut samples: Vec<f64> = (0..count).map(|_| next()).collect();
    let complete = count - count % GROUP;
    samples[..complete].chunks_mut(GROUP).for_each(box_muller);
    if complete < count {
        let last = &mut samples[count - GROUP..];
        last.fill_with(next);
        box_muller(last);
    }
    samples
}

fn box_muller(group: &mut [f64]) {
    let (radii, angles) = group.split_at_mut(GROUP / 2);
    for (radius, angle) in radii.iter_mut().zip(angles) {
        let length = (-2.0 * (1.0 - *radius).ln()).sqrt();
        let (sine, cosine) = (TAU * *angle).sin_cos();
        (*radius, *angle) = (length * cosine, length * sine);
    }
}

/// Fewer samples than a group are generated in pairs, from 53 random bits.
fn in_pairs(generator: &mut MersenneTwister, count: usize) -> Vec<f64> {
    let mut next = || {
        let high = u64::from(generator.next_word());
        let low = u64::from(generator.next_word());
        let bits = ((high << 32) | low) & ((1 << 53) - 1);
        bits as f64 / (1u64 << 53) as f64
    };
    let mut samples = Vec::new();
    while samples.len() < count {
        let (angle, radius) = (next(), next());
        let length = (-2.0 * (-radius).ln_1p()).sqrt();
        let (sine, cosine) = (TAU * angle).sin_cos();
        samples.extend([length * cosine, length * sine]);
    }
    samples.truncate(count);
    samples
}

/// The generator MT19937.
struct MersenneTwister {
    state: [u32; STATE_WORDS],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; STATE_WORDS];
        for index in 1..STATE_WORDS {
            let previous = state[index - 1];
            state[index] = (previous ^ (previous >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(index as u32);
        }
        Self {
            state,
            next: STATE_WORDS,
        }
    }

    fn next_word(&mut self) -> u32 {
        if self.next == STATE_WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        let state = &mut self.state;
        for index in 0..STATE_WORDS {
            let joined =
                (state[index] & 0x8000_0000) | (state[(index + 1) % STATE_WORDS] & 0x7fff_ffff);
            let odd = if joined % 2 == 1 { 0x9908_b0df } else { 0 };
            state[index] = state[(index + 397) % STATE_WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_close};

    #[test]
    fn words_are_those_of_the_published_generator() {
        let mut generator = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| generator.next_word()).last();
        // The value that the C++ standard names for its mt19937.
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn small_samples_are_those_of_pytorch() {
        let expected = [0.7376, 1.9459, -0.6995, -1.3023, -0.5133];
        assert_close("samples", &torch_normal(11, 5), &expected, Scale::One, 1e-4);
    }
}
