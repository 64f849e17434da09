//! Differentiable operations of the transformer family on burn tensors, one file each.
//!
//! Every operation is composed of burn's own, so that it runs and differentiates on any backend; on the CPU a fused kernel
//! with its own backward pass replaces it (`fused`). Models use these operations and nothing below them, and cannot tell
//! which of the two runs.

mod activation;
mod adamw;
mod attention;
mod cross_entropy;
mod device;
mod dropout;
mod embedding;
mod exact_dims;
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
mod torch_normal;

pub use activation::{Activation, activate, gated};
pub use adamw::{AdamWState, AdamWStep, adamw, sum_of_squares};
pub use attention::{
    PartialAttention, apply_weights, attention, attention_weights, attention_with_log_sum_exp,
    merge_partial_attention,
};
pub use cross_entropy::{IGNORE_INDEX, cross_entropy};
pub use device::{DeviceError, check_environment, device, device_names, set_threads};
pub use dropout::dropout;
pub use embedding::embedding;
pub use linear::{LinearParameters, activated_linear, feed_forward, linear, linear_qkv};
pub use linear_attention::{LinearAttentionOutput, LinearState, linear_attention};
pub use mask::{BlockPattern, Mask};
pub use norm::{NormKind, NormParameters, add, add_norm, add_norm_with_sum, norm, norm_with_input};
pub use positive_features::{FeatureMap, positive_features};
pub use random::{Purpose, Randomness};
pub use random_features::{Stabilizer, orthogonal_features, random_features};
pub use rotary::{RotaryAngles, rotary};
pub use scores::{ScoreBias, Scores};
pub use softmax::{masked_softmax, softmax};
pub use torch_normal::torch_normal;

/// burn's tensors and devices, so that callers need not depend on burn themselves.
pub use burn::tensor::{Device, Int, Tensor, TensorData};
