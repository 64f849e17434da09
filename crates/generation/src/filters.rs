//! Filters on the scores of the next token, each after Hugging Face's definition.

/// Makes tokens that already occurred less likely. Keskar et al. 2019.
pub fn penalize_repetition(logits: &mut [f32], seen: &[u32], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let mut seen = seen.to_vec();
    seen.sort_unstable();
    seen.dedup();
    for id in seen {
        if let Some(score) = logits.get_mut(id as usize) {
            let factor = if *score > 0.0 { 1.0 / penalty } else { penalty };
            *score = (f64::from(*score) * factor) as f32;
        }
    }
}

/// Keeps the `count` highest scores and those equal to the last of them. Fan et al. 2018.
pub fn top_k(logits: &mut [f32], count: usize) {
    if count >= logits.len() {
        return;
    }
    let mut sorted = logits.to_vec();
    let (_, last_kept, _) = sorted.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    let last_kept = *last_kept;
    forbid(logits, |score| score < last_kept);
}

/// Keeps the most likely tokens that together reach the probability. Holtzman et al. 2019.
pub fn top_p(logits: &mut [f32], probability: f64) {
    if probability >= 1.0 {
        return;
    }
    let probabilities = softmax(logits);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let mut sum = 0.0;
    for id in order {
        // The token that crosses the line is still kept, so at least one always is.
        if sum >= probability {
            logits[id] = f32::NEG_INFINITY;
        }
        sum += probabilities[id];
    }
}

/// Keeps tokens that have at least this part of the likeliest's probability. Nguyen et al. 2024.
pub fn min_p(logits: &mut [f32], part: f64) {
    let probabilities = softmax(logits);
    let largest = probabilities.iter().copied().fold(0.0, f64::max);
    for (score, probability) in logits.iter_mut().zip(probabilities) {
        // The likeliest is kept whatever the part.
        if probability < part * largest {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Keeps tokens whose surprise is nearest to what is expected, until they together reach the probability. Meister et al. 2022.
pub fn typical_p(logits: &mut [f32], probability: f64) {
    if probability >= 1.0 {
        return;
    }
    let probabilities = softmax(logits);
    let surprise = |id: usize| -probabilities[id].ln();
    let possible = (0..logits.len()).filter(|id| probabilities[*id] > 0.0);
    let mut order: Vec<usize> = possible.collect();
    let expected: f64 = order
        .iter()
        .map(|id| probabilities[*id] * surprise(*id))
        .sum();
    let strangeness = |id: usize| (surprise(id) - expected).abs();
    order.sort_by(|a, b| strangeness(*a).total_cmp(&strangeness(*b)));
    let mut sum = 0.0;
    let crossing = order.iter().position(|id| {
        sum += probabilities[*id];
        sum >= probability
    });
    let Some(last) = crossing.map(|place| strangeness(order[place])) else {
        return;
    };
    for id in order {
        if strangeness(id) > last {
            logits[id] = f32::NEG_INFINITY;
        }
    }
}

/// The probabilities that the scores stand for.
pub(crate) fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut values: Vec<f64> = logits
        .iter()
        .map(|score| f64::from(score - largest).exp())
        .collect();
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
    values
}

fn forbid(logits: &mut [f32], which: impl Fn(f32) -> bool) {
    for score in logits.iter_mut().filter(|score| which(**score)) {
        *score = f32::NEG_INFINITY;
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
