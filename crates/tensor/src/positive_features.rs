//! Positive feature maps of queries and keys, for linear attention. Katharopoulos et al. 2020 (ELU plus one).

use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

use crate::fused;

/// A function applied to each element, whose values are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureMap {
    /// `elu(x) + 1`: `x + 1` above zero, `e^x` below
    EluPlusOne,
    /// `max(x, 0) + 1e-6`, so that no row of features is all zeros
    Relu,
    /// `e^x`
    Exp,
    /// `ln(1 + e^x)`
    Softplus,
}

/// Applies `map` to every element of `x`, `[batch, heads, length, head_width]`.
pub fn positive_features(x: Tensor<4>, map: FeatureMap) -> Tensor<4> {
    if fused::has_kernels(&x) {
        return fused::feature_map(x, map);
    }
    match map {
        FeatureMap::EluPlusOne => {
            // Clamped: the exponential of positive elements is discarded, and could overflow.
            let negative = x.clone().lower_elem(0.0);
            let low = x.clone().clamp_max(0.0).exp();
            (x + 1.0).mask_where(negative, low)
        }
        FeatureMap::Relu => {
            activation::relu(x) + f64::from(attentive_kernels::feature_maps::RELU_EPSILON)
        }
        FeatureMap::Exp => x.exp(),
        FeatureMap::Softplus => {
            let small = x.clone().abs().neg().exp();
            activation::relu(x) + small.log1p()
        }
    }
}
