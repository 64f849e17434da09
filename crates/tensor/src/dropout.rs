//! Dropout: zeroes elements at random and scales up the rest. Srivastava et al. 2014.

use burn::tensor::{Tensor, TensorData};

use crate::{Randomness, fused};

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
    let key = randomness.next_key();
    if fused::has_kernels(&x) {
        return fused::dropout(x, probability, key);
    }
    let dims = x.dims();
    let mut factors = vec![0.0; dims.iter().product()];
    let ones = vec![1.0; factors.len()];
    attentive_kernels::dropout::dropout(&ones, probability as f32, key, &mut factors);
    x.clone() * Tensor::from_data(TensorData::new(factors, dims), &x.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Purpose;
    use attentive_testing::{Scale, assert_close, assert_near, ulps};
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
        let kept: Vec<f32> = values.into_iter().filter(|v| *v != 0.0).collect();
        let std = (0.25f64 * 0.75 / 1e5).sqrt();
        assert_near("kept", kept.len() as f64 / 1e5, 0.75, Scale::Of(std), 4.0);
        let expected = vec![4.0 / 3.0; kept.len()];
        assert_close("values", &kept, &expected, Scale::Largest, ulps(1));
        let same = dropout(x, 0.25, None)
            .into_data()
            .try_to_vec::<f32>()
            .unwrap();
        assert!(same.iter().all(|v| *v == 1.0));
    }
}
