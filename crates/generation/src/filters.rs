//! Filters on the logits of the next token, as transformers defines them.

use crate::softmax::softmax;

/// Divides the positive logits of tokens that already occurred by `penalty`, and multiplies the negative ones. Keskar et al.
/// 2019.
pub fn penalize_repetition(logits: &mut [f32], seen: &[u32], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let mut seen = seen.to_vec();
    seen.sort_unstable();
    seen.dedup();
    for id in seen {
        if let Some(logit) = logits.get_mut(id as usize) {
            let factor = if *logit > 0.0 { 1.0 / penalty } else { penalty };
            *logit = (f64::from(*logit) * factor) as f32;
        }
    }
}

/// Keeps the `count` highest logits, and ties with the last of them. Fan et al. 2018.
pub fn top_k(logits: &mut [f32], count: usize) {
    if count >= logits.len() {
        return;
    }
    let mut sorted = logits.to_vec();
    let (_, last_kept, _) = sorted.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    let last_kept = *last_kept;
    mask_where(logits, |logit| logit < last_kept);
}

/// Keeps the nucleus: the most probable tokens whose probabilities add up to `probability`. Holtzman et al. 2019.
pub fn top_p(logits: &mut [f32], probability: f64) {
    if probability >= 1.0 {
        return;
    }
    let probabilities = softmax(logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let mut sum = 0.0;
    for id in order {
        // The token that crosses the threshold is kept, so at least one always is.
        if sum >= probability {
            logits[id] = f32::NEG_INFINITY;
        }
        sum += probabilities[id];
    }
}

/// Keeps tokens with at least `fraction` of the highest probability. Nguyen et al. 2024.
pub fn min_p(logits: &mut [f32], fraction: f64) {
    let probabilities = softmax(logits);
    let largest = probabilities.iter().copied().fold(0.0, f64::max);
    for (logit, probability) in logits.iter_mut().zip(probabilities) {
        // The most probable token is kept whatever the fraction.
        if probability < fraction * largest {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Keeps the tokens whose surprisal is nearest to the entropy, until their probabilities add up to `probability`. Meister et
/// al. 2022.
pub fn typical_p(logits: &mut [f32], probability: f64) {
    if probability >= 1.0 {
        return;
    }
    let probabilities = softmax(logits);
    let surprisal = |id: usize| -probabilities[id].ln();
    let possible = (0..logits.len()).filter(|id| probabilities[*id] > 0.0);
    let mut order: Vec<usize> = possible.collect();
    let entropy: f64 = order
        .iter()
        .map(|id| probabilities[*id] * surprisal(*id))
        .sum();
    let deviation = |id: usize| (surprisal(id) - entropy).abs();
    order.sort_by(|a, b| deviation(*a).total_cmp(&deviation(*b)));
    let mut sum = 0.0;
    let crossing = order.iter().position(|id| {
        sum += probabilities[*id];
        sum >= probability
    });
    let Some(last) = crossing.map(|index| deviation(order[index])) else {
        return;
    };
    for id in order {
        if deviation(id) > last {
            logits[id] = f32::NEG_INFINITY;
        }
    }
}

fn mask_where(logits: &mut [f32], condition: impl Fn(f32) -> bool) {
    for logit in logits.iter_mut().filter(|logit| condition(**logit)) {
        *logit = f32::NEG_INFINITY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(logits: &[f32]) -> Vec<usize> {
        let kept = logits.iter().enumerate().filter(|(_, s)| s.is_finite());
        kept.map(|(i, _)| i).collect()
    }

    #[test]
    fn top_k_keeps_the_highest() {
        let mut logits = [0.1, 3.0, -1.0, 2.0, 2.5];
        top_k(&mut logits, 2);
        assert_eq!(kept(&logits), [1, 4]);
        top_k(&mut logits, 99);
        assert_eq!(kept(&logits), [1, 4]);
    }

    #[test]
    fn top_p_keeps_the_nucleus_and_at_least_one() {
        let scores = [0.5f32, 0.3, 0.15, 0.05].map(f32::ln);
        for (probability, expected) in [
            (0.01, vec![0]),
            (0.6, vec![0, 1]),
            (0.9, vec![0, 1, 2]),
            (1.0, vec![0, 1, 2, 3]),
        ] {
            let mut logits = scores;
            top_p(&mut logits, probability);
            assert_eq!(kept(&logits), expected, "p = {probability}");
        }
    }

    #[test]
    fn repetition_is_penalized_once_per_token_and_on_both_signs() {
        let mut logits = [2.0, -2.0, 1.0];
        penalize_repetition(&mut logits, &[0, 1, 0, 7], 2.0);
        assert_eq!(logits, [1.0, -4.0, 1.0]);
    }
}
