//! Differentiable operations of the transformer family on burn tensors, one file each.
//!
//! Every operation is written as a composition of burn's own, so that it runs and differentiates on any backend.
//! Models use these and nothing below them; a faster kernel can take an operation's place without a model noticing.

mod activation;
mod attention;
mod cross_entropy;
mod device;
mod dropout;
mod layer_norm;
mod linear;
mod mask;
mod random;
mod rms_norm;
mod rotary;

pub use activation::{Activation, activate};
pub use attention::{apply_weights, attention, attention_weights};
pub use cross_entropy::{IGNORED_TARGET, cross_entropy};
pub use device::{DeviceError, device, device_names};
pub use dropout::dropout;
pub use layer_norm::layer_norm;
pub use linear::linear;
pub use mask::Mask;
pub use random::{Purpose, Randomness};
pub use rms_norm::rms_norm;
pub use rotary::{RotaryAngles, rotary};

/// burn's tensors and devices, so that callers need not depend on burn themselves.
pub use burn::tensor::{Device, Int, Tensor, TensorData};
