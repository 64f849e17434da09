//! Dropout: zeroes elements at random and scales up the rest. Srivastava et al. 2014.

use burn::tensor::{Tensor, TensorData};
use rand::RngCore;

use crate::Randomness;

/// Zeroes each element with the given probability and divides the others by one minus it.
///
/// Without randomness (outside training) or with probability zero, `x` passes unchanged.
pub fn dropout<const D: usize>(
    x: Tensor<D>,
    probability: f64,
    randomness: Option<&mut Randomness>,
) -> Tensor<D> {
    assert!(
        (0.0..1.0).contains(&probability),
        "dropout: probability {probability} is not in [0, 1)"
    );
    let Some(randomness) = randomness.filter(|_| probability > 0.0) else {
        return x;
    };
    let dims = x.dims();
    let mut generator = randomness.next_generator();
    let threshold = (probability * 2f64.powi(32)) as u32;
    let kept = (1.0 / (1.0 - probability)) as f32;
    let factors: Vec<f32> = (0..dims.iter().product())
        .map(|_| {
            if generator.next_u32() < threshold {
                0.0
            } else {
                kept
            }
        })
        .collect();
    let factors = Tensor::from_data(TensorData::new(factors, dims), &x.device());
    x * factors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Purpose;
    use burn::tensor::Device;

    #[test]
    fn keeps_the_expected_share_and_the_mean() {
        let x = Tensor::<2>::ones([100, 1000], &Device::flex());
        let y = dropout(
            x.clone(),
            0.25,
            Some(&mut Randomness::new(Purpose::Dropout, 7, 0)),
        );
        let values = y.into_data().try_to_vec::<f32>().unwrap();
        let zeros = values.iter().filter(|v| **v == 0.0).count() as f64 / 1e5;
        assert!((zeros - 0.25).abs() < 0.01, "dropped {zeros}");
        assert!(
            values
                .iter()
                .all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6)
        );
        let same = dropout(x, 0.25, None)
            .into_data()
            .try_to_vec::<f32>()
            .unwrap();
        assert!(same.iter().all(|v| *v == 1.0));
    }
}
