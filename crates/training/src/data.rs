//! What a run trains on: a corpus, its tokenizer, and the ids on both sides of the split.

use std::path::PathBuf;

use attentive_text::{Corpus, SplitTokens, TextError, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::Recipe;

/// Where the text comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DataConfig {
    /// The built-in generator of small stories.
    Stories {
        /// How many.
        count: usize,
        /// The part that is held out to judge by.
        #[serde(default = "default_held_out")]
        held_out: f64,
    },
    /// Text files.
    Files {
        /// Where they are.
        paths: Vec<PathBuf>,
        /// The part that is held out to judge by.
        #[serde(default = "default_held_out")]
        held_out: f64,
    },
}

fn default_held_out() -> f64 {
    0.1
}

impl DataConfig {
    /// Reads or generates the text.
    pub fn corpus(&self, seed: u64) -> Result<Corpus, TextError> {
        match self {
            Self::Stories { count, .. } => Ok(Corpus::stories(seed, *count)),
            Self::Files { paths, .. } => Corpus::read(paths),
        }
    }

    /// Whether both ask for the same text, as far as can be said without reading it: files may have moved.
    pub fn same_but_for_paths(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files { held_out, .. }, Self::Files { held_out: it, .. }) => held_out == it,
            _ => self == other,
        }
    }

    /// The part that is held out to judge by.
    pub fn held_out(&self) -> f64 {
        match self {
            Self::Stories { held_out, .. } | Self::Files { held_out, .. } => *held_out,
        }
    }
}

/// A corpus made ready.
#[derive(Debug)]
pub struct Data {
    /// How text becomes ids.
    pub tokenizer: Tokenizer,
    /// The ids.
    pub tokens: SplitTokens,
    /// Changes when the text does.
    pub fingerprint: u64,
}

impl Data {
    /// Encodes the corpus of a recipe; a tokenizer is trained unless one is given.
    pub fn prepare(
        recipe: &Recipe,
        corpus: &Corpus,
        tokenizer: Option<Tokenizer>,
    ) -> Result<Self, TextError> {
        let tokenizer = match tokenizer {
            Some(tokenizer) => tokenizer,
            None => Tokenizer::train(&recipe.tokenizer, corpus.documents())?,
        };
        let tokens = corpus.split(&tokenizer, recipe.data.held_out())?;
        tokens.require_windows(recipe.model.length)?;
        Ok(Self {
            tokenizer,
            tokens,
            fingerprint: corpus.fingerprint(),
        })
    }
}
