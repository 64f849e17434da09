//! Softmax and log-softmax of one row of logits on the host, in f64 so that the probabilities of a large vocabulary add up to
//! one.

/// The probabilities of `logits`.
pub fn softmax(logits: &[f32]) -> Vec<f64> {
    let mut probabilities: Vec<f64> = exponentials(logits, max(logits)).collect();
    let sum: f64 = probabilities.iter().sum();
    probabilities.iter_mut().for_each(|it| *it /= sum);
    probabilities
}

/// Turns logits into log-probabilities in place; returns false and changes nothing if none is finite.
pub(crate) fn log_softmax(logits: &mut [f32]) -> bool {
    let max = max(logits);
    if !max.is_finite() {
        return false;
    }
    let log_sum_exp = f64::from(max) + exponentials(logits, max).sum::<f64>().ln();
    for logit in logits.iter_mut() {
        *logit = (f64::from(*logit) - log_sum_exp) as f32;
    }
    true
}

/// The largest logit; NaN is ignored.
pub(crate) fn max(logits: &[f32]) -> f32 {
    logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

fn exponentials(logits: &[f32], max: f32) -> impl Iterator<Item = f64> {
    logits.iter().map(move |logit| f64::from(logit - max).exp())
}
