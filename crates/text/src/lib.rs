//! Text in, token ids out: tokenizers, corpora, windows of ids, streamed decoding and chat templates.
//!
//! This crate never sees a tensor. It turns files, or the built-in stories, into sequences of ids; cuts those
//! sequences into windows for training and evaluation; and turns generated ids back into text, one at a time.
//!
//! ```
//! use attentive_text::{Corpus, Tokenizer, TokenizerConfig};
//!
//! let corpus = Corpus::stories(1, 100);
//! let tokenizer = Tokenizer::train(&TokenizerConfig::Bpe { vocabulary: 300 }, corpus.documents())?;
//! let split = corpus.split(&tokenizer, 0.1)?;
//! split.require_windows(64)?;
//! let batch = attentive_text::training_windows(&split.training, 7, 0, 4, 64);
//! assert_eq!(batch.len(), 4);
//! # Ok::<(), attentive_text::TextError>(())
//! ```

mod base64;
mod byte_symbols;
mod chat;
mod chunks;
mod corpus;
mod encoded;
mod error;
mod folder;
mod gguf;
mod padding;
mod sentence_piece;
pub mod stories;
mod stream;
mod tokenizer;
mod windows;

pub use chat::{ChatEnd, ChatMessage, ChatTemplates};
pub use corpus::{Corpus, SplitTokens};
pub use encoded::{Encoded, Truncation, TruncationStrategy, WhichText};
pub use error::TextError;
pub use folder::{SpecialToken, SpecialTokens};
pub use gguf::GgufTokenizer;
pub use padding::{PadTo, PaddedBatch, Side};
pub use stream::TextStream;
pub use tokenizer::{END_OF_TEXT, Tokenizer, TokenizerConfig};
pub use windows::{held_out_windows, training_windows, unigram_entropy};
