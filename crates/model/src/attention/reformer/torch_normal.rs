//! Normal numbers as PyTorch draws them on the CPU from a seed, up to the last bits: a checkpoint that names a seed means the
//! rotations that come of it there. Matsumoto and Nishimura 1998; Box and Muller 1958.

use std::f64::consts::TAU;

const WORDS: usize = 624;

/// So many numbers are drawn at once.
const GROUP: usize = 16;

/// The first `count` numbers of deviation one after `torch.manual_seed(seed)`.
pub(super) fn torch_normal(seed: u64, count: usize) -> Vec<f32> {
    let mut words = MersenneTwister::new(seed as u32);
    let numbers = match count < GROUP {
        true => in_pairs(&mut words, count),
        false => in_groups(&mut words, count),
    };
    numbers.into_iter().map(|number| number as f32).collect()
}

/// A group holds eight radii and then eight angles. Where the last is not whole, the last sixteen numbers are drawn anew.
fn in_groups(words: &mut MersenneTwister, count: usize) -> Vec<f64> {
    let mut next = || f64::from(words.next_word() & 0xff_ffff) / f64::from(1 << 24);
    let mut numbers: Vec<f64> = (0..count).map(|_| next()).collect();
    let whole = count - count % GROUP;
    numbers[..whole].chunks_mut(GROUP).for_each(turn);
    if whole < count {
        let last = &mut numbers[count - GROUP..];
        last.fill_with(next);
        turn(last);
    }
    numbers
}

fn turn(group: &mut [f64]) {
    let (radii, angles) = group.split_at_mut(GROUP / 2);
    for (radius, angle) in radii.iter_mut().zip(angles) {
        let length = (-2.0 * (1.0 - *radius).ln()).sqrt();
        let (sine, cosine) = (TAU * *angle).sin_cos();
        (*radius, *angle) = (length * cosine, length * sine);
    }
}

/// Few numbers are drawn by twos, of more bits.
fn in_pairs(words: &mut MersenneTwister, count: usize) -> Vec<f64> {
    let mut next = || {
        let high = u64::from(words.next_word());
        let low = u64::from(words.next_word());
        let bits = ((high << 32) | low) & ((1 << 53) - 1);
        bits as f64 / (1u64 << 53) as f64
    };
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let (angle, radius) = (next(), next());
        let length = (-2.0 * (-radius).ln_1p()).sqrt();
        let (sine, cosine) = (TAU * angle).sin_cos();
        numbers.extend([length * cosine, length * sine]);
    }
    numbers.truncate(count);
    numbers
}

/// The generator MT19937.
struct MersenneTwister {
    state: [u32; WORDS],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; WORDS];
        for place in 1..WORDS {
            let before = state[place - 1];
            state[place] = (before ^ (before >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(place as u32);
        }
        Self { state, next: WORDS }
    }

    fn next_word(&mut self) -> u32 {
        if self.next == WORDS {
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
        for place in 0..WORDS {
            let joined = (state[place] & 0x8000_0000) | (state[(place + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined % 2 == 1 { 0x9908_b0df } else { 0 };
            state[place] = state[(place + 397) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_published_generator() {
        let mut words = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| words.next_word()).last();
        // The number that the C++ standard names for its mt19937.
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn few_numbers_are_those_of_pytorch() {
        let expected = [0.7376, 1.9459, -0.6995, -1.3023, -0.5133];
        for (ours, theirs) in torch_normal(11, 5).into_iter().zip(expected) {
            assert!((ours - theirs).abs() < 1e-4, "{ours} and {theirs}");
        }
    }
}
