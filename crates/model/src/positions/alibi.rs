//! Attention with linear biases: each head subtracts the distance times a slope of its own. Press et al. 2022.

/// The slope of each head: `2^(-8 · h / heads)` for heads 1, 2, … where their number is a power of two.
///
/// For other numbers, as in the paper's code: the slopes of the next smaller power of two, then every other slope of the
/// next larger one until there are enough.
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let of_power = |heads: usize| {
        (1..=heads).map(move |head| (-8.0 * head as f64 / heads as f64).exp2() as f32)
    };
    if heads.is_power_of_two() {
        return of_power(heads).collect();
    }
    let smaller = heads.next_power_of_two() / 2;
    let between = of_power(2 * smaller).step_by(2);
    of_power(smaller).chain(between).take(heads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!((sixteen[0] - 0.707_106_77).abs() < 1e-7);
        assert!(alibi_slopes(0).is_empty());
    }
}
