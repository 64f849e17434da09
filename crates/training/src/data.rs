//! The data of a run: a corpus, its tokenizer, and the training and held-out tokens.

use std::path::PathBuf;

use attentive_data::{Corpus, DataError, SplitTokens};
use attentive_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::Recipe;

/// Where the text comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DataConfig {
    /// Generated stories.
    Stories {
        /// Number of stories.
        count: usize,
        /// The fraction that is held out for evaluation.
        #[serde(default = "default_held_out")]
        held_out: f64,
    },
    /// Text files.
    Files {
        /// The files.
        paths: Vec<PathBuf>,
        /// The fraction that is held out for evaluation.
        #[serde(default = "default_held_out")]
        held_out: f64,
    },
}

fn default_held_out() -> f64 {
    0.1
}

impl DataConfig {
    /// Reads or generates the text.
    pub fn corpus(&self, seed: u64) -> Result<Corpus, DataError> {
        match self {
            Self::Stories { count, .. } => Ok(Corpus::stories(seed, *count)),
            Self::Files { paths, .. } => Corpus::read(paths),
        }
    }

    /// Whether both describe the same text, paths aside: files may have moved, and a fingerprint detects whether they changed.
    pub fn same_but_for_paths(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files { held_out, .. }, Self::Files { held_out: it, .. }) => held_out == it,
            _ => self == other,
        }
    }

    /// The fraction that is held out for evaluation.
    pub fn held_out(&self) -> f64 {
        match self {
            Self::Stories { held_out, .. } | Self::Files { held_out, .. } => *held_out,
        }
    }
}

/// A tokenized corpus.
#[derive(Debug)]
pub struct TrainingData {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The tokens.
    pub tokens: SplitTokens,
    /// A hash of the text.
    pub fingerprint: u64,
}

impl TrainingData {
    /// Tokenizes the corpus of a recipe; a tokenizer is trained unless one is given.
    pub fn prepare(
        recipe: &Recipe,
        corpus: &Corpus,
        tokenizer: Option<Tokenizer>,
    ) -> Result<Self, DataError> {
        let tokenizer = match tokenizer {
            Some(tokenizer) => tokenizer,
            None => Tokenizer::train(&recipe.tokenizer, corpus.documents())?,
        };
        let tokens = corpus.split(&tokenizer, recipe.data.held_out())?;
        tokens.require_windows(recipe.model.stack.length)?;
        Ok(Self {
            tokenizer,
            tokens,
            fingerprint: corpus.fingerprint(),
        })
    }
}
