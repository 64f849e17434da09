//! Softmax and cross-entropy with ignored targets and label smoothing (Szegedy et al. 2015).

use burn::tensor::{Int, Shape, Tensor, activation::log_softmax};

use crate::fused;

/// A target that is excluded from the loss; the same value as in PyTorch and Hugging Face.
pub const IGNORE_INDEX: i64 = attentive_kernels::cross_entropy::IGNORE_INDEX;

/// Mean cross-entropy in nats of `logits` `[rows, vocabulary]` against `targets` `[rows]`, over the targets that are not
/// ignored; zero if all are.
///
/// With smoothing `s`, the target keeps `1 - s` of the probability and `s` is spread evenly over the vocabulary.
///
/// # Panics
/// When there are not as many targets as rows, the rows are empty, or the smoothing is not in `[0, 1]`.
pub fn cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    label_smoothing: f64,
) -> Tensor<1> {
    let [rows, vocabulary] = logits.dims();
    assert!(
        targets.dims() == [rows] && (vocabulary > 0 || rows == 0),
        "cross_entropy: logits {:?} do not match targets {:?}",
        [rows, vocabulary],
        targets.dims()
    );
    assert!(
        (0.0..=1.0).contains(&label_smoothing),
        "cross_entropy: label smoothing {label_smoothing} is not in [0, 1]"
    );
    if fused::has_kernels(&logits) {
        return fused::cross_entropy(logits, targets, label_smoothing);
    }
    composed(logits, targets, label_smoothing)
}

fn composed(logits: Tensor<2>, targets: Tensor<1, Int>, label_smoothing: f64) -> Tensor<1> {
    let [rows, vocabulary] = logits.dims();
    let ignored = targets.clone().equal_scalar(IGNORE_INDEX as i32);
    let counted = ignored.clone().bool_not().float();
    let targets = targets.mask_fill(ignored.clone(), 0);
    // An ignored row may hold anything: infinity times zero would be NaN, in the loss and in the gradient.
    let ignored = ignored.reshape([rows, 1]);
    let ignored = ignored.expand(Shape::from([rows, vocabulary]));
    let log_probabilities = log_softmax(logits.mask_fill(ignored, 0.0), 1);
    let log_likelihoods = log_probabilities
        .clone()
        .gather(1, targets.reshape([rows, 1]))
        .reshape([rows]);
    let log_likelihoods = if label_smoothing > 0.0 {
        let uniform = log_probabilities.mean_dim(1).reshape([rows]);
        log_likelihoods * (1.0 - label_smoothing) + uniform * label_smoothing
    } else {
        log_likelihoods
    };
    let count = counted.clone().sum().clamp_min(1.0);
    (log_likelihoods * counted).sum().neg() / count
}
