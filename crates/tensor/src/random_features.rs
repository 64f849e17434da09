//! Positive random features of the softmax kernel (FAVOR+), and their orthogonal projections. Choromanski et al. 2021.
//!
//! With features φ of queries and keys, `φq·φk` is an estimate of `exp(q·k / √head_width)`, up to factors that cancel in
//! linear attention. Values are those of the PyPI package performer-pytorch.

use attentive_kernels::random_features::MAX_EXPONENT;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::{Randomness, fused, linear};

/// What is subtracted in the exponent of a feature. It is detached: no gradient flows through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stabilizer {
    /// The maximum score of the row: for queries, where a factor per row cancels.
    RowMaximum,
    /// The maximum score of all rows of a head, for keys that are all known at once. Not for causal or cached passes: an
    /// earlier row would depend, through epsilon and rounding, on later ones. Where one score is far above the others, epsilon
    /// dominates their features, however many there are.
    KeysMaximum,
    /// Nothing, for keys of causal passes and of states: a key's features depend on that key alone. Exponents are at most half
    /// the square of a projection's row, about half of `head_width`; they are clamped to 60 for f32.
    Constant,
}

/// `features^-1/2 · (exp(n x·w - n²|x|²/2 - stabilizer) + epsilon)` for each row `w` of the projection, `n = head_width^-1/4`.
///
/// `x` is `[batch, heads, length, head_width]`, the projection `[features, head_width]`.
///
/// # Panics
/// When the shapes do not match, or `x` has no width.
pub fn random_features(
    x: Tensor<4>,
    projection: Tensor<2>,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> Tensor<4> {
    let [features, head_width] = projection.dims();
    assert!(
        x.dims()[3] == head_width && head_width > 0,
        "random_features: rows {:?} do not match projection {:?} [features, head_width]",
        x.dims(),
        projection.dims()
    );
    if fused::has_kernels(&x) {
        return fused::random_features(x, projection, stabilizer, epsilon);
    }
    let scale = (head_width as f64).powf(-0.25);
    let ratio = (features as f64).powf(-0.5);
    let scores = linear(x.clone() * scale, projection, None);
    if scores.shape().num_elements() == 0 {
        return scores;
    }
    let half = x.square().sum_dim(3) * (0.5 * scale * scale);
    let exponents = scores.clone() - half;
    // Without epsilon the largest feature becomes one; with epsilon, features are scaled as in performer-pytorch.
    let stabilized = if epsilon > 0.0 {
        scores
    } else {
        exponents.clone()
    };
    let exponents = match stabilizer {
        Stabilizer::RowMaximum => exponents - stabilized.detach().max_dim(3),
        Stabilizer::KeysMaximum => exponents - stabilized.detach().max_dim(3).max_dim(2),
        Stabilizer::Constant => exponents,
    };
    let exponents = exponents.clamp_max(MAX_EXPONENT);
    (exponents.exp() + epsilon) * ratio
}

/// A projection for [`random_features`], `[features, head_width]`: blocks of orthogonal rows, each with the length of a
/// vector of independent normal samples, so that every row is distributed like one.
pub fn orthogonal_features(
    features: usize,
    head_width: usize,
    randomness: &mut Randomness,
    device: &Device,
) -> Tensor<2> {
    let mut normal = randomness.next_normal(1.0);
    let mut rows: Vec<f32> = Vec::with_capacity(features * head_width);
    while rows.len() < features * head_width {
        let count = head_width.min(features - rows.len() / head_width);
        for direction in orthogonal_rows(count, head_width, &mut normal) {
            let length = norm(normal.by_ref().take(head_width));
            rows.extend(direction.iter().map(|it| (it * length) as f32));
        }
    }
    Tensor::from_data(TensorData::new(rows, [features, head_width]), device)
}

/// Orthonormal rows by Gram-Schmidt with reorthogonalization: a single pass leaves large rounding errors.
fn orthogonal_rows(
    count: usize,
    width: usize,
    normal: &mut impl Iterator<Item = f64>,
) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(count);
    while rows.len() < count {
        let mut row: Vec<f64> = normal.take(width).collect();
        for _ in 0..2 {
            for other in &rows {
                let projection: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                for (x, other) in row.iter_mut().zip(other) {
                    *x -= projection * other;
                }
            }
        }
        let length = norm(row.iter().copied());
        // A row in the span of the others, which has probability zero, is sampled again.
        if length > 1e-9 {
            row.iter_mut().for_each(|x| *x /= length);
            rows.push(row);
        }
    }
    rows
}

fn norm(row: impl Iterator<Item = f64>) -> f64 {
    row.map(|x| x * x).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, Purpose, Scores, attention, linear_attention};
    use attentive_testing::{Scale, assert_close, assert_near, ulps};
    use burn::tensor::Distribution;

    fn sample(features: usize, head_width: usize, seed: u64) -> Vec<f32> {
        let randomness = &mut Randomness::new(Purpose::Weights, seed, 0);
        let rows = orthogonal_features(features, head_width, randomness, &Device::flex());
        assert_eq!(rows.dims(), [features, head_width]);
        rows.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn rows_of_a_block_are_orthogonal_and_as_long_as_normal_ones() {
        let (features, width) = (150, 64);
        let rows = sample(features, width, 1);
        let dot = |a: usize, b: usize| -> f64 {
            let row = |i: usize| &rows[i * width..(i + 1) * width];
            let products = row(a).iter().zip(row(b));
            products.map(|(a, b)| f64::from(a * b)).sum()
        };
        let mut mean = 0.0;
        for a in 0..features {
            for b in a / width * width..a {
                let lengths = (dot(a, a) * dot(b, b)).sqrt();
                let what = format_args!("{a} and {b}");
                // Half an ulp of each value and of each product, in sums of magnitudes of at most the product of the lengths.
                assert_near(what, dot(a, b), 0.0, Scale::Of(lengths), ulps(2));
            }
            mean += dot(a, a) / features as f64;
        }
        // The square of a length has mean 64 and standard deviation √128, here over 150 rows.
        let std = (128f64 / 150.0).sqrt();
        assert_near("squared length", mean, 64.0, Scale::Of(std), 4.0);
        assert_eq!(sample(features, width, 1), rows);
        assert_ne!(sample(features, width, 2), rows);
        assert!(sample(0, 4, 1).is_empty());
    }

    /// The estimate of softmax attention gets better with more features.
    #[test]
    fn the_error_falls_as_features_grow() {
        let device = Device::flex();
        device.seed(3);
        let sample =
            || Tensor::<4>::random([1, 2, 40, 16], Distribution::Normal(0.0, 0.5), &device);
        let [query, key, value] = [sample(), sample(), sample()];
        for (mask, keys) in [
            (Mask::none(), Stabilizer::KeysMaximum),
            (Mask::causal(), Stabilizer::Constant),
        ] {
            let scores = Scores::new(mask.clone(), 0.25);
            let exact = attention(
                query.clone(),
                key.clone(),
                value.clone(),
                &scores,
                0.0,
                None,
            );
            let error = |features: usize| {
                let randomness = &mut Randomness::new(Purpose::Weights, 7, 0);
                let projection = orthogonal_features(features, 16, randomness, &device);
                let query = random_features(
                    query.clone(),
                    projection.clone(),
                    Stabilizer::RowMaximum,
                    0.0,
                );
                let key = random_features(key.clone(), projection, keys, 0.0);
                let ours = linear_attention(query, key, value.clone(), &mask, None).context;
                (ours - exact.clone()).square().mean().into_scalar::<f32>()
            };
            let errors = [16, 256, 4096].map(error);
            assert!(errors[1] < 0.5 * errors[0], "{errors:?}");
            assert!(errors[2] < 0.5 * errors[1], "{errors:?}");
        }
    }

    /// Long rows, whose exponentials overflow f32, keep their largest feature, and attention of them is not NaN.
    #[test]
    fn long_rows_have_features() {
        let device = Device::flex();
        device.seed(5);
        let sample =
            |std| Tensor::<4>::random([1, 2, 30, 16], Distribution::Normal(0.0, std), &device);
        let [query, key, value] = [sample(12.0), sample(12.0), sample(1.0)];
        let randomness = &mut Randomness::new(Purpose::Weights, 7, 0);
        let projection = orthogonal_features(64, 16, randomness, &device);
        let of = |x: &Tensor<4>, stabilizer| {
            random_features(x.clone(), projection.clone(), stabilizer, 0.0)
        };
        let largest = of(&query, Stabilizer::RowMaximum).max_dim(3) * 8.0;
        let largest = largest.into_data().try_to_vec::<f32>().unwrap();
        assert_close("features", &largest, &[1f32; 60], Scale::One, 1e-3);
        for (mask, keys) in [
            (Mask::none(), Stabilizer::KeysMaximum),
            (Mask::causal(), Stabilizer::Constant),
        ] {
            let (query, key) = (of(&query, Stabilizer::RowMaximum), of(&key, keys));
            let context = linear_attention(query, key, value.clone(), &mask, None).context;
            let context = context.into_data().try_to_vec::<f32>().unwrap();
            assert!(context.iter().all(|it| it.is_finite()), "{keys:?}");
        }
    }
}
