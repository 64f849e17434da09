//! ALiBi, attention with linear biases: each head has its own slope and subtracts it times the distance. Press et al. 2022.

/// The slope of each head: `2^(-8 · h / heads)` for heads 1, 2, … if the number of heads is a power of two.
///
/// Otherwise, as in the paper's code: the slopes of the next smaller power of two, then every other slope of the next larger
/// one.
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let powers = |heads: usize| {
        (1..=heads).map(move |head| (-8.0 * head as f64 / heads as f64).exp2() as f32)
    };
    if heads.is_power_of_two() {
        return powers(heads).collect();
    }
    let smaller = heads.next_power_of_two() / 2;
    let between = powers(2 * smaller).step_by(2);
    powers(smaller).chain(between).take(heads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_near, ulps};

    #[test]
    fn slopes_are_those_of_the_papers_code() {
        assert_eq!(alibi_slopes(1), [0.00390625]);
        assert_eq!(
            alibi_slopes(8),
            [
                0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625
            ]
        );
        let twelve = alibi_slopes(12);
        assert_eq!(twelve[..8], alibi_slopes(8));
        let sixteen = alibi_slopes(16);
        assert_eq!(
            twelve[8..],
            [sixteen[0], sixteen[2], sixteen[4], sixteen[6]]
        );
        let root = std::f64::consts::FRAC_1_SQRT_2;
        assert_near("slope", sixteen[0], root, Scale::Largest, ulps(1));
        assert!(alibi_slopes(0).is_empty());
    }
}
