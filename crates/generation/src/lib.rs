//! Decoding: sessions with a cache, filters on the scores, sampling, stop conditions, streamed text.

mod filters;
mod generate;
mod sampling;
mod session;
mod stop;

pub use filters::{penalize_repetition, top_k, top_p};
pub use generate::{
    Generated, GenerationConfig, GenerationError, Piece, StopReason, check, generate,
};
pub use sampling::{Sampling, SamplingError};
pub use session::Session;
pub use stop::StopStrings;
