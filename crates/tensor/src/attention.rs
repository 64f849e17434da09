//! Scaled dot-product attention over projected heads. Vaswani et al. 2017.
//!
//! Grouped heads (Ainslie et al. 2023) need no copy of the keys: the queries of a group stand below each other.
//!
//! ```text
//!  query heads   0 1 2 3 4 5      6 query heads, 2 key-value heads:
//!                |-|-| |-|-|      queries [batch, 2, 3 · queries, width]
//!  key-value       0     1        keys    [batch, 2, keys, width]
//! ```

use burn::tensor::{Shape, Tensor};

use crate::exactly::Exactly;
use crate::fused::{self, AttentionOptions};
use crate::{Randomness, Scores, dropout, softmax};

/// The context of each query, `[batch, heads, queries, value_width]`.
///
/// `query` is `[batch, heads, queries, head_width]`, `key` and `value` `[batch, key_value_heads, keys, …]`.
/// A query with nothing to attend to gets zeros.
///
/// # Panics
/// When the shapes do not fit each other or the mask, or the probability is not in `[0, 1)`.
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
        return fused::attend(query, key, value, scores.bias.clone(), options);
    }
    let weights = attention_weights(query, key, scores);
    apply_weights(dropout(weights, dropout_probability, randomness), value)
}

/// What attention gives, with what it takes to merge it with attention to other keys ([`merge_attended`]).
#[derive(Clone, Debug)]
pub struct Attended {
    /// `[batch, heads, queries, value_width]`
    pub context: Tensor<4>,
    /// `[batch, heads, queries]`: the natural logarithm of the sum of the exponentials of a query's scores, before dropout;
    /// minus infinity where a query has nothing to attend to.
    pub log_sums: Tensor<3>,
}

/// [`attention`], and the logarithms of the sums of its exponentials. Both have gradients.
///
/// # Panics
/// As [`attention`].
pub fn attention_with_log_sums(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    scores: &Scores,
    dropout_probability: f64,
    randomness: Option<&mut Randomness>,
) -> Attended {
    let operands = [&query, &key, &value];
    check(
        "attention_with_log_sums",
        operands,
        scores,
        dropout_probability,
    );
    if has_kernel(operands) {
        let options = options(scores, dropout_probability, randomness);
        return fused::attend_with_log_sums(query, key, value, scores.bias.clone(), options);
    }
    let products = scores.composed(query, key);
    let log_sums = log_sums(products.clone());
    let weights = dropout(softmax(products), dropout_probability, randomness);
    Attended {
        context: apply_weights(weights, value),
        log_sums,
    }
}

/// Panics where the operands do not fit each other.
fn check(operation: &str, [query, key, value]: [&Tensor<4>; 3], scores: &Scores, dropout: f64) {
    scores.check(operation, query, key);
    assert_eq!(
        value.dims()[..3],
        key.dims()[..3],
        "{operation}: values {:?} do not fit keys {:?}",
        value.dims(),
        key.dims()
    );
    assert!(
        (0.0..1.0).contains(&dropout),
        "{operation}: dropout {dropout} is not in [0, 1)"
    );
}

/// The kernels are for heads that hold something; weights are made by definition where they hold nothing.
fn has_kernel([query, _, value]: [&Tensor<4>; 3]) -> bool {
    let [_, heads, _, head_width] = query.dims();
    fused::has_kernels(query) && heads > 0 && head_width > 0 && value.dims()[3] > 0
}

fn options(scores: &Scores, dropout: f64, randomness: Option<&mut Randomness>) -> AttentionOptions {
    let key_of_dropout = randomness
        .filter(|_| dropout > 0.0)
        .map(Randomness::next_key);
    AttentionOptions {
        scale: scores.scale,
        mask: scores.mask.clone(),
        dropout: key_of_dropout.map(|key| (dropout, key)),
    }
}

/// The logarithms of the rows' sums of exponentials, `[batch, heads, queries]`.
fn log_sums(scores: Tensor<4>) -> Tensor<3> {
    let [batch, heads, queries, keys] = scores.dims();
    let rows = [batch, heads, queries];
    if keys == 0 || rows.contains(&0) {
        return Tensor::full(Shape::from(rows), f32::NEG_INFINITY, &scores.device());
    }
    log_sum_exp(scores).total.reshape(rows)
}

/// Of each row, its exponentials as shares of their sum, and the logarithm of that sum. A row of nothing but minus infinity
/// has shares of zero, and sends back nothing.
struct LogSumExp {
    shares: Tensor<4>,
    total: Tensor<4>,
}

fn log_sum_exp(rows: Tensor<4>) -> LogSumExp {
    let largest = rows.clone().detach().max_dim(3);
    let empty = largest.clone().equal_scalar(f32::NEG_INFINITY);
    let largest = largest.mask_fill(empty.clone(), 0.0);
    let exponentials = (rows - largest.clone()).exp();
    let sums = exponentials.clone().sum_dim(3);
    let sums = sums.mask_fill(empty.clone(), 1.0);
    LogSumExp {
        shares: exponentials / sums.clone(),
        total: (sums.log() + largest).mask_fill(empty, f32::NEG_INFINITY),
    }
}

/// Attention to several sets of keys that have none in common, as if it had been to all of them at once: each context
/// weighs as much as the exponentials of its keys. Where a part saw nothing it has no weight; where none saw anything, the
/// result is zeros. Milakov and Gimelshein 2018.
///
/// # Panics
/// When there are no parts, or their shapes differ.
pub fn merge_attended(parts: Vec<Attended>) -> Attended {
    let first = parts.first().expect("merge_attended: there are no parts");
    let dims = first.context.dims();
    let [batch, heads, queries, _] = dims;
    for part in &parts {
        assert!(
            part.context.dims() == dims && part.log_sums.dims()[..] == dims[..3],
            "merge_attended: contexts {:?} and log-sums {:?} do not fit contexts {dims:?}",
            part.context.dims(),
            part.log_sums.dims()
        );
    }
    if dims[..3].contains(&0) {
        return first.clone();
    }
    let log_sums = parts.iter().map(|part| part.log_sums.clone()).collect();
    let LogSumExp { shares, total } = log_sum_exp(Tensor::stack(log_sums, 3));
    let weighed = parts.into_iter().enumerate().map(|(index, part)| {
        let share = shares.clone().narrow(3, index, 1);
        part.context * share
    });
    Attended {
        context: weighed.reduce(Tensor::add).expect("there is a part"),
        log_sums: total.reshape([batch, heads, queries]),
    }
}

/// The attention weights, `[batch, heads, queries, keys]`: rows sum to one, or are all zero where nothing is allowed.
///
/// # Panics
/// When the shapes do not fit each other or the mask.
pub fn attention_weights(query: Tensor<4>, key: Tensor<4>, scores: &Scores) -> Tensor<4> {
    scores.check("attention_weights", &query, &key);
    let [_, heads, _, head_width] = query.dims();
    if fused::has_kernels(&query) && heads > 0 && head_width > 0 {
        let options = options(scores, 0.0, None);
        return fused::weigh(query, key, scores.bias.clone(), options);
    }
    softmax(scores.composed(query, key))
}

/// The weighted sums of the values, `[batch, heads, queries, value_width]`.
///
/// # Panics
/// When the shapes do not fit.
pub fn apply_weights(weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, keys] = weights.dims();
    let [value_batch, key_value_heads, value_keys, value_width] = value.dims();
    assert!(
        batch == value_batch
            && keys == value_keys
            && key_value_heads > 0
            && heads.is_multiple_of(key_value_heads),
        "apply_weights: weights {:?} do not fit values {:?}",
        weights.dims(),
        value.dims()
    );
    let group = heads / key_value_heads;
    weights
        .reshape(Exactly([batch, key_value_heads, group * queries, keys]))
        .matmul(value)
        .reshape(Exactly([batch, heads, queries, value_width]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mask;
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

    #[test]
    fn rows_sum_to_one_and_an_empty_row_is_zeros() {
        let (q, k) = (heads(2, 4, 3, 8), heads(2, 2, 5, 8));
        let mask = Mask::causal().with_keys(vec![0..5, 3..5]);
        let weights = attention_weights(q, k.clone(), &Scores::new(mask, 0.3));
        let sums = weights
            .clone()
            .sum_dim(3)
            .into_data()
            .try_to_vec::<f32>()
            .unwrap();
        // Queries stand at positions 2, 3, 4; in row 1 the keys before 3 are padding, so its first query sees none.
        for (i, sum) in sums.iter().enumerate() {
            let expected = if i >= 12 && i % 3 == 0 { 0.0 } else { 1.0 };
            assert!((sum - expected).abs() < 1e-6, "row {i} sums to {sum}");
        }
        let context = apply_weights(weights, k)
            .into_data()
            .try_to_vec::<f32>()
            .unwrap();
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
        assert!(grouped.all_close(repeated, Some(1e-5), Some(1e-6)));
    }
}
