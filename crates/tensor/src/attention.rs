//! Scaled dot-product attention over projected heads. Vaswani et al. 2017.
//!
//! Grouped-query attention (Ainslie et al. 2023) needs no copy of the keys: the queries of a group are stacked along the
//! length.
//!
//! ```text
//!  query heads   0 1 2 3 4 5      6 query heads, 2 key-value heads:
//!                |-|-| |-|-|      queries [batch, 2, 3 · queries, width]
//!  key-value       0     1        keys    [batch, 2, keys, width]
//! ```

use burn::tensor::{Shape, Tensor};

use crate::exact_dims::ExactDims;
use crate::fused::{self, AttentionOptions};
use crate::{Randomness, Scores, dropout, softmax};

/// The context of each query, `[batch, heads, queries, value_width]`.
///
/// `query` is `[batch, heads, queries, head_width]`, `key` and `value` `[batch, key_value_heads, keys, …]`.
/// A query with no visible key gets zeros.
///
/// # Panics
/// When the shapes do not match each other or the mask, or the probability is not in `[0, 1)`.
pub fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    scores: &Scores,
    dropout_probability: f64,
    randomness: Option<&mut Randomness>,
) -> Tensor<4> {
    let operands = [&query, &key, &value];
    check("attention", operands, scores, dropout_probability);
    if has_kernel(operands) {
        let options = options(scores, dropout_probability, randomness);
        return fused::attention([query, key, value], scores.bias.clone(), options);
    }
    let weights = attention_weights(query, key, scores);
    apply_weights(dropout(weights, dropout_probability, randomness), value)
}

/// Attention to some of the keys, which [`merge_partial_attention`] merges with attention to others.
#[derive(Clone, Debug)]
pub struct PartialAttention {
    /// `[batch, heads, queries, value_width]`
    pub context: Tensor<4>,
    /// `[batch, heads, queries]`: the log-sum-exp of each query's scores, before dropout; minus infinity for a query with no
    /// visible key.
    pub log_sum_exp: Tensor<3>,
}

/// [`attention`], and the log-sum-exp of its scores. Both have gradients.
///
/// # Panics
/// As [`attention`].
pub fn attention_with_log_sum_exp(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    scores: &Scores,
    dropout_probability: f64,
    randomness: Option<&mut Randomness>,
) -> PartialAttention {
    let operands = [&query, &key, &value];
    check(
        "attention_with_log_sum_exp",
        operands,
        scores,
        dropout_probability,
    );
    if has_kernel(operands) {
        let options = options(scores, dropout_probability, randomness);
        return fused::attention_with_log_sum_exp(
            [query, key, value],
            scores.bias.clone(),
            options,
        );
    }
    let products = scores.composed(query, key);
    let log_sum_exp = log_sum_exp(products.clone());
    let weights = dropout(softmax(products), dropout_probability, randomness);
    PartialAttention {
        context: apply_weights(weights, value),
        log_sum_exp,
    }
}

/// Panics where the operands do not match each other.
fn check(operation: &str, [query, key, value]: [&Tensor<4>; 3], scores: &Scores, dropout: f64) {
    scores.check(operation, query, key);
    assert_eq!(
        value.dims()[..3],
        key.dims()[..3],
        "{operation}: values {:?} do not match keys {:?}",
        value.dims(),
        key.dims()
    );
    assert!(
        (0.0..1.0).contains(&dropout),
        "{operation}: dropout {dropout} is not in [0, 1)"
    );
}

/// The kernels need heads that are not empty.
fn has_kernel([query, _, value]: [&Tensor<4>; 3]) -> bool {
    let [_, heads, _, head_width] = query.dims();
    fused::has_kernels(query) && heads > 0 && head_width > 0 && value.dims()[3] > 0
}

fn options(scores: &Scores, dropout: f64, randomness: Option<&mut Randomness>) -> AttentionOptions {
    let dropout_key = randomness
        .filter(|_| dropout > 0.0)
        .map(Randomness::next_key);
    AttentionOptions {
        scale: scores.scale,
        mask: scores.mask.clone(),
        dropout: dropout_key.map(|key| (dropout, key)),
    }
}

/// The log-sum-exp of each row, `[batch, heads, queries]`.
fn log_sum_exp(scores: Tensor<4>) -> Tensor<3> {
    let [batch, heads, queries, keys] = scores.dims();
    let rows = [batch, heads, queries];
    if keys == 0 || rows.contains(&0) {
        return Tensor::full(Shape::from(rows), f32::NEG_INFINITY, &scores.device());
    }
    softmax_with_log_sum_exp(scores).log_sum_exp.reshape(rows)
}

/// The softmax of each row and its log-sum-exp. A row of only minus infinity has probabilities of zero, and no gradient.
struct SoftmaxWithLogSumExp {
    probabilities: Tensor<4>,
    log_sum_exp: Tensor<4>,
}

fn softmax_with_log_sum_exp(rows: Tensor<4>) -> SoftmaxWithLogSumExp {
    let maxima = rows.clone().detach().max_dim(3);
    let empty = maxima.clone().equal_scalar(f32::NEG_INFINITY);
    let maxima = maxima.mask_fill(empty.clone(), 0.0);
    let exponentials = (rows - maxima.clone()).exp();
    let sums = exponentials.clone().sum_dim(3);
    let sums = sums.mask_fill(empty.clone(), 1.0);
    SoftmaxWithLogSumExp {
        probabilities: exponentials / sums.clone(),
        log_sum_exp: (sums.log() + maxima).mask_fill(empty, f32::NEG_INFINITY),
    }
}

/// Merges attention to disjoint sets of keys into attention to their union: contexts are weighted by the softmax of their
/// log-sum-exps. A part with no visible key has no weight; where no part has one, the result is zeros. Milakov and
/// Gimelshein 2018.
///
/// # Panics
/// When there are no parts, or their shapes differ.
pub fn merge_partial_attention(parts: Vec<PartialAttention>) -> PartialAttention {
    let first = parts
        .first()
        .expect("merge_partial_attention: there are no parts");
    let dims = first.context.dims();
    let [batch, heads, queries, _] = dims;
    for part in &parts {
        assert!(
            part.context.dims() == dims && part.log_sum_exp.dims()[..] == dims[..3],
            "merge_partial_attention: contexts {:?} and log-sum-exps {:?} do not match contexts {dims:?}",
            part.context.dims(),
            part.log_sum_exp.dims()
        );
    }
    if dims[..3].contains(&0) {
        return first.clone();
    }
    let of_parts = parts.iter().map(|part| part.log_sum_exp.clone()).collect();
    let SoftmaxWithLogSumExp {
        probabilities,
        log_sum_exp,
    } = softmax_with_log_sum_exp(Tensor::stack(of_parts, 3));
    let weighted = parts.into_iter().enumerate().map(|(index, part)| {
        let weight = probabilities.clone().narrow(3, index, 1);
        part.context * weight
    });
    PartialAttention {
        context: weighted.reduce(Tensor::add).expect("there is a part"),
        log_sum_exp: log_sum_exp.reshape([batch, heads, queries]),
    }
}

/// The attention weights, `[batch, heads, queries, keys]`: rows sum to one, or are all zero where no key is visible.
///
/// # Panics
/// When the shapes do not match each other or the mask.
pub fn attention_weights(query: Tensor<4>, key: Tensor<4>, scores: &Scores) -> Tensor<4> {
    scores.check("attention_weights", &query, &key);
    let [_, heads, _, head_width] = query.dims();
    if fused::has_kernels(&query) && heads > 0 && head_width > 0 {
        let options = options(scores, 0.0, None);
        return fused::attention_weights(query, key, scores.bias.clone(), options);
    }
    softmax(scores.composed(query, key))
}

/// The weighted sums of the values, `[batch, heads, queries, value_width]`.
///
/// # Panics
/// When the shapes do not match.
pub fn apply_weights(weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, keys] = weights.dims();
    let [value_batch, key_value_heads, value_keys, value_width] = value.dims();
    assert!(
        batch == value_batch
            && keys == value_keys
            && key_value_heads > 0
            && heads.is_multiple_of(key_value_heads),
        "apply_weights: weights {:?} do not match values {:?}",
        weights.dims(),
        value.dims()
    );
    let group = heads / key_value_heads;
    weights
        .reshape(ExactDims([batch, key_value_heads, group * queries, keys]))
        .matmul(value)
        .reshape(ExactDims([batch, heads, queries, value_width]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mask;
    use attentive_testing::{Scale, assert_close, ulps_of_sum};
    use burn::tensor::{Device, Distribution};

    fn heads(batch: usize, heads: usize, length: usize, width: usize) -> Tensor<4> {
        let device = Device::flex();
        device.seed(3);
        Tensor::random(
            [batch, heads, length, width],
            Distribution::Default,
            &device,
        )
    }

    fn values(x: Tensor<4>) -> Vec<f32> {
        x.into_data().try_to_vec::<f32>().unwrap()
    }

    #[test]
    fn rows_sum_to_one_and_an_empty_row_is_zeros() {
        let (q, k) = (heads(2, 4, 3, 8), heads(2, 2, 5, 8));
        let mask = Mask::causal().with_keys(vec![0..5, 3..5]);
        let weights = attention_weights(q, k.clone(), &Scores::new(mask, 0.3));
        let sums = values(weights.clone().sum_dim(3));
        // Queries are at positions 2, 3, 4; in row 1 the keys before 3 are padding, so its first query sees none.
        let empty = |row: usize| row >= 12 && row.is_multiple_of(3);
        let expected: Vec<f32> = (0..24).map(|row| f32::from(!empty(row))).collect();
        assert_close("sums of rows", &sums, &expected, Scale::One, 1e-6);
        let context = values(apply_weights(weights, k));
        assert!(context.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn grouped_heads_equal_repeated_keys() {
        let (q, k, v) = (heads(2, 6, 4, 8), heads(2, 2, 4, 8), heads(2, 2, 4, 5));
        let repeat = |x: Tensor<4>| {
            let [b, h, l, w] = x.dims();
            x.reshape([b, h, 1, l * w])
                .repeat_dim(2, 3)
                .reshape([b, h * 3, l, w])
        };
        let scores = Scores::new(Mask::causal(), 0.35);
        let grouped = attention(q.clone(), k.clone(), v.clone(), &scores, 0.0, None);
        let repeated = attention(q, repeat(k), repeat(v), &scores, 0.0, None);
        let (grouped, repeated) = (values(grouped), values(repeated));
        // Scores of about one, sums of eight products, and averages of at most four values between zero and one.
        let bound = ulps_of_sum(8) + ulps_of_sum(4);
        assert_close("context", &grouped, &repeated, Scale::One, bound);
    }
}
