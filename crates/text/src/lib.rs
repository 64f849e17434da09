//! Tokenizers, streamed decoding and chat templates. Never sees a tensor.
//!
//! ```
//! use attentive_text::{Tokenizer, TokenizerConfig};
//!
//! let tokenizer = Tokenizer::train(&TokenizerConfig::Bytes {}, &["a cat sat".to_owned()])?;
//! assert_eq!(tokenizer.decode(&tokenizer.encode("a cat")?)?, "a cat");
//! # Ok::<(), attentive_text::TextError>(())
//! ```

mod base64;
mod byte_level;
mod chat;
mod chunks;
mod encoded;
mod error;
mod files;
mod folder;
mod gguf;
mod padding;
mod sentence_piece;
mod stream;
mod tokenizer;

pub use chat::{ChatEnd, ChatMessage, ChatTemplates};
pub use encoded::{Encoded, SequenceId, Truncation, TruncationStrategy};
pub use error::TextError;
pub use files::read_bytes;
pub use folder::{SpecialToken, SpecialTokens, TokenizerOptions};
pub use gguf::GgufTokenizer;
pub use padding::{PadTo, PaddedBatch, Side};
pub use stream::TextStream;
pub use tokenizer::{DocumentError, END_OF_TEXT, Tokenizer, TokenizerConfig, panics_are_errors};
