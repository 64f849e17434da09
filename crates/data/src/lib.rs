//! Training data: text files and generated stories, split into training and held-out tokens, cut into windows.
//!
//! ```
//! use attentive_data::{Corpus, training_windows};
//! use attentive_text::{Tokenizer, TokenizerConfig};
//!
//! let corpus = Corpus::stories(1, 100);
//! let tokenizer = Tokenizer::train(&TokenizerConfig::Bpe { vocabulary: 300 }, corpus.documents())?;
//! let split = corpus.split(&tokenizer, 0.1)?;
//! split.require_windows(64)?;
//! let batch = training_windows(&split.training, 7, 0, 4, 64);
//! assert_eq!(batch.len(), 4);
//! # Ok::<(), attentive_data::DataError>(())
//! ```

mod corpus;
mod error;
pub mod stories;
mod windows;

pub use corpus::{Corpus, SplitTokens};
pub use error::DataError;
pub use windows::{held_out_windows, training_windows, unigram_entropy};
