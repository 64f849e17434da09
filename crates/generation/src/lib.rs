//! Decoding: sessions with a cache, filters on the scores, sampling, beam search, stop conditions, streamed text.

mod beams;
mod check;
mod error;
mod filters;
mod generate;
mod rules;
mod sampling;
mod sequences;
mod session;
mod stop;

pub use beams::{Beam, BeamConfig, Changes, beam_search};
pub use check::{check, check_prompt, check_tokenizer};
pub use error::{GenerationError, SettingError};
pub use filters::{min_p, penalize_repetition, top_k, top_p, typical_p};
pub use generate::{Generated, GenerationConfig, Piece, StopReason, generate};
pub use rules::Rules;
pub use sampling::Sampling;
pub use session::{Session, encode};
pub use stop::StopStrings;

pub use attentive_model::checkpoint::{Bias, EndPull, SearchEnd};
