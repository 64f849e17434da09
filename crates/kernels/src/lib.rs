//! CPU kernels over slices: SIMD, multithreading, cache blocking. Knows nothing of tensors.
//!
//! Every kernel has a naive version beside it (in a module `naive`): its specification and the oracle of its tests. The
//! instruction set is detected at run time ([`simd`]); the environment variable `ATTENTIVE_SIMD` (`scalar`, `avx2`) forces a
//! narrower one. Results are deterministic: how a reduction is split never depends on thread scheduling.

pub mod activation;
pub mod adamw;
pub mod attention;
#[cfg(test)]
mod checks;
pub mod cross_entropy;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
#[cfg(test)]
mod equal_bits;
pub mod feature_maps;
pub mod feed_forward;
pub mod gemm;
pub mod linear;
pub mod linear_attention;
mod map_reduce;
mod microkernel;
pub mod norms;
mod pack;
mod partition;
pub mod random;
pub mod random_features;
pub mod rotary;
pub mod simd;
pub mod softmax;
pub mod threads;

pub use microkernel::Init;
