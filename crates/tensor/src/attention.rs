//! Scaled dot-product attention over projected heads. Vaswani et al. 2017.
//!
//! Grouped heads (Ainslie et al. 2023) need no copy of the keys: the queries of a group stand below each other.
//!
//! ```text
//!  query heads   0 1 2 3 4 5      6 query heads, 2 key-value heads:
//!                |-|-| |-|-|      queries [batch, 2, 3 · queries, width]
//!  key-value       0     1        keys    [batch, 2, keys, width]
//! ```

use burn::tensor::Tensor;

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
    scores.check("attention", &query, &key);
    assert_eq!(
        value.dims()[..3],
        key.dims()[..3],
        "attention: values {:?} do not fit keys {:?}",
        value.dims(),
        key.dims()
    );
    assert!(
        (0.0..1.0).contains(&dropout_probability),
        "attention: dropout {dropout_probability} is not in [0, 1)"
    );
    // The kernels are for heads that hold something; weights are made by definition where they hold nothing.
    let [_, heads, _, head_width] = query.dims();
    let holds_something = heads > 0 && head_width > 0 && value.dims()[3] > 0;
    if fused::has_kernels(&query) && holds_something {
        let key_of_dropout = randomness
            .filter(|_| dropout_probability > 0.0)
            .map(Randomness::next_key);
        let options = AttentionOptions {
            scale: scores.scale,
            causal: scores.mask.is_causal(),
            window: scores.mask.window(),
            keys: scores.mask.keys().map(<[_]>::to_vec),
            dropout: key_of_dropout.map(|key| (dropout_probability, key)),
        };
        return fused::attend(query, key, value, scores.bias.clone(), options);
    }
    let weights = attention_weights(query, key, scores);
    apply_weights(dropout(weights, dropout_probability, randomness), value)
}

/// The attention weights, `[batch, heads, queries, keys]`: rows sum to one, or are all zero where nothing is allowed.
///
/// # Panics
/// When the shapes do not fit each other or the mask.
pub fn attention_weights(query: Tensor<4>, key: Tensor<4>, scores: &Scores) -> Tensor<4> {
    scores.check("attention_weights", &query, &key);
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
