//! Positive random features of the softmax kernel (FAVOR+), and the projections that make them. Choromanski et al. 2021.
//!
//! With features φ of queries and keys, `φq·φk` is an estimate of `exp(q·k / √head_width)`, up to factors that linear
//! attention divides out. Values are those of the PyPI package performer-pytorch.

use attentive_kernels::random_features::LARGEST_EXPONENT;
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::{Randomness, fused, linear};

/// What is subtracted in the exponent of a feature. It is taken as a constant: no gradient flows through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stabilizer {
    /// The largest score of the row: for queries, where a factor of a row is divided out.
    RowMaximum,
    /// The largest score of all rows of a head, for keys that are all there at once. Not for causal passes or cached ones: an
    /// earlier row would depend, through epsilon and rounding, on later ones. Where one score is far above the others, epsilon
    /// outweighs their features, however many there are.
    KeysMaximum,
    /// Nothing, for keys of causal passes and of states: a key's features depend on that key alone. Exponents are at most half
    /// the square of a projection's row, about half of `head_width`; they are held at 60, where f32 would not do.
    Constant,
}

/// `features^-1/2 · (exp(n x·w - n²|x|²/2 - stabilizer) + epsilon)` for each row `w` of the projection, `n = head_width^-1/4`.
///
/// `x` is `[batch, heads, length, head_width]`, the projection `[features, head_width]`.
///
/// # Panics
/// When the shapes do not fit, or `x` has no width.
pub fn random_features(
    x: Tensor<4>,
    projection: Tensor<2>,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> Tensor<4> {
    let [features, head_width] = projection.dims();
    assert!(
        x.dims()[3] == head_width && head_width > 0,
        "random_features: rows {:?} do not fit projection {:?} [features, head_width]",
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
    // The largest feature becomes one; but beside an epsilon, features stay as large as the package has them.
    let measured = if epsilon > 0.0 {
        scores
    } else {
        exponents.clone()
    };
    let exponents = match stabilizer {
        Stabilizer::RowMaximum => exponents - measured.detach().max_dim(3),
        Stabilizer::KeysMaximum => exponents - measured.detach().max_dim(3).max_dim(2),
        Stabilizer::Constant => exponents,
    };
    let exponents = exponents.clamp_max(LARGEST_EXPONENT);
    (exponents.exp() + epsilon) * ratio
}

/// A projection for [`random_features`], `[features, head_width]`: blocks of orthogonal rows, each as long as a row of
/// independent normal numbers, so that every row is distributed like one.
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

/// Orthogonal rows of length one, by Gram and Schmidt, each projection twice: once leaves rounding errors of the first size.
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
                let share: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                for (number, other) in row.iter_mut().zip(other) {
                    *number -= share * other;
                }
            }
        }
        let length = norm(row.iter().copied());
        // A row that the others span, which chance all but never draws, is drawn again.
        if length > 1e-9 {
            row.iter_mut().for_each(|number| *number /= length);
            rows.push(row);
        }
    }
    rows
}

fn norm(row: impl Iterator<Item = f64>) -> f64 {
    row.map(|number| number * number).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, Purpose, Scores, attention, linear_attention};
    use burn::tensor::Distribution;

    fn draw(features: usize, head_width: usize, seed: u64) -> Vec<f32> {
        let randomness = &mut Randomness::new(Purpose::Weights, seed, 0);
        let rows = orthogonal_features(features, head_width, randomness, &Device::flex());
        assert_eq!(rows.dims(), [features, head_width]);
        rows.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn rows_of_a_block_are_orthogonal_and_as_long_as_normal_ones() {
        let (features, width) = (150, 64);
        let rows = draw(features, width, 1);
        let dot = |a: usize, b: usize| -> f64 {
            let row = |i: usize| &rows[i * width..(i + 1) * width];
            let products = row(a).iter().zip(row(b));
            products.map(|(a, b)| f64::from(a * b)).sum()
        };
        let mut mean = 0.0;
        for a in 0..features {
            for b in a / width * width..a {
                assert!(dot(a, b).abs() < 1e-4, "{a} and {b}: {}", dot(a, b));
            }
            mean += dot(a, a) / features as f64;
        }
        // The square of a length has mean 64 and deviation √128, here over 150 rows.
        assert!(
            (mean - 64.0).abs() < 4.0 * (128f64 / 150.0).sqrt(),
            "{mean}"
        );
        assert_eq!(draw(features, width, 1), rows);
        assert_ne!(draw(features, width, 2), rows);
        assert!(draw(0, 4, 1).is_empty());
    }

    /// The estimate of softmax attention gets better with more features.
    #[test]
    fn the_error_falls_as_features_grow() {
        let device = Device::flex();
        device.seed(3);
        let draw = || Tensor::<4>::random([1, 2, 40, 16], Distribution::Normal(0.0, 0.5), &device);
        let [query, key, value] = [draw(), draw(), draw()];
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

    /// Long rows, whose exponentials f32 does not hold, keep their largest feature, and attention of them is no NaN.
    #[test]
    fn long_rows_have_features() {
        let device = Device::flex();
        device.seed(5);
        let draw = |deviation| {
            Tensor::<4>::random(
                [1, 2, 30, 16],
                Distribution::Normal(0.0, deviation),
                &device,
            )
        };
        let [query, key, value] = [draw(12.0), draw(12.0), draw(1.0)];
        let randomness = &mut Randomness::new(Purpose::Weights, 7, 0);
        let projection = orthogonal_features(64, 16, randomness, &device);
        let of = |x: &Tensor<4>, stabilizer| {
            random_features(x.clone(), projection.clone(), stabilizer, 0.0)
        };
        let largest = of(&query, Stabilizer::RowMaximum).max_dim(3) * 8.0;
        assert!(largest.all_close(Tensor::ones([1, 2, 30, 1], &device), Some(1e-3), None));
        for (mask, keys) in [
            (Mask::none(), Stabilizer::KeysMaximum),
            (Mask::causal(), Stabilizer::Constant),
        ] {
            let (query, key) = (of(&query, Stabilizer::RowMaximum), of(&key, keys));
            let context = linear_attention(query, key, value.clone(), &mask, None).context;
            let numbers = context.into_data().try_to_vec::<f32>().unwrap();
            assert!(numbers.iter().all(|it| it.is_finite()), "{keys:?}");
        }
    }
}
