//! Generation: sessions with a KV cache, logits processors, sampling, beam search, stop strings, streamed text.

mod beams;
mod check;
mod error;
mod filters;
mod generate;
mod logits_processors;
mod options;
mod sampling;
mod sequences;
mod session;
pub mod settings;
mod softmax;
mod stop;

pub use beams::{Beam, BeamConfig, beam_search};
pub use check::{check, check_can_generate, check_prompt, check_tokenizer};
pub use error::{GenerationError, SettingError};
pub use filters::{min_p, penalize_repetition, top_k, top_p, typical_p};
pub use generate::{Generated, GenerationConfig, StopReason, TextChunk, generate};
pub use logits_processors::LogitsProcessors;
pub use options::{Decoding, DecodingContext, GenerateOptions};
pub use sampling::Sampling;
pub use session::{Session, encode};
pub use settings::{
    EarlyStopping, ExponentialDecayLengthPenalty, GenerationSettings, MAX_BEAMS, SequenceBias,
    SettingsFileError, SpecialTokens, token_ids,
};
pub use softmax::softmax;
pub use stop::StopStrings;
