//! Differentiable operations of the transformer family on burn tensors, one file each.
//!
//! Every operation is written as a composition of burn's own, so that it runs and differentiates on any backend; on the CPU
//! a kernel with a backward pass of its own takes its place (`fused`). Models use these and nothing below them, and cannot
//! see which of the two runs.

mod activation;
mod adamw;
mod attention;
mod cross_entropy;
mod device;
mod dropout;
mod embedding;
mod exactly;
mod fused;
mod linear;
mod linear_attention;
mod mask;
mod norm;
mod positive_features;
mod random;
mod random_features;
mod rotary;
mod scores;
mod softmax;

pub use activation::{Activation, activate, gated};
pub use adamw::{AdamWState, AdamWStep, adamw, sum_of_squares};
pub use attention::{
    Attended, apply_weights, attention, attention_weights, attention_with_log_sums, merge_attended,
};
pub use cross_entropy::{IGNORED_TARGET, cross_entropy};
pub use device::{DeviceError, check_environment, device, device_names};
pub use dropout::dropout;
pub use embedding::embedding;
pub use linear::{LinearMap, activated_linear, feed_forward, linear, three_linears};
pub use linear_attention::{LinearAttended, LinearState, linear_attention};
pub use mask::{BlockPattern, Mask};
pub use norm::{NormKind, NormOperands, add, norm, norm_beside, norm_beside_sum, norm_of_sum};
pub use positive_features::{FeatureMap, positive_features};
pub use random::{Purpose, Randomness};
pub use random_features::{Stabilizer, orthogonal_features, random_features};
pub use rotary::{RotaryAngles, rotary};
pub use scores::{ScoreBias, Scores};
pub use softmax::{masked_softmax, softmax};

/// burn's tensors and devices, so that callers need not depend on burn themselves.
pub use burn::tensor::{Device, Int, Tensor, TensorData};
