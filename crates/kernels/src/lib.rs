//! Loops over slices: SIMD, threads, tiles. Knows nothing of tensors.
//!
//! Every kernel stands beside its naive twin (`naive` functions): the specification, and the oracle of its tests.
//! Vector instructions are chosen at run time ([`simd`]); the environment variable `ATTENTIVE_SIMD` (`scalar`,
//! `avx2`) forces a narrower path. Results do not depend on scheduling: sums are split in fixed places.

pub mod activation;
pub mod adamw;
pub mod attention;
#[cfg(test)]
mod checks;
pub mod cross_entropy;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod feature_maps;
pub mod feed_forward;
pub mod gemm;
pub mod limits;
pub mod linear;
pub mod linear_attention;
mod micro;
pub mod norms;
mod pack;
mod parts;
pub mod random;
pub mod random_features;
pub mod rotary;
pub mod simd;
pub mod softmax;
mod sweep;
pub mod threads;

pub use micro::Onto;
