//! Where a file of weights says more than its config.json: Hugging Face believes the weights, and so do we.

use super::TensorFile;
use super::table::{Lookup, Names};
use crate::{HeadConfig, ModelConfig, WordsConfig};

/// The settings that the weights mean.
pub fn adapted(config: &ModelConfig, names: &Names, file: &TensorFile) -> ModelConfig {
    let mut config = config.clone();
    let lookup = Lookup::new(names, file);
    if let Some(words) = config.head.words().filter(|words| words.tied)
        && has_own_head(names, &lookup, file)
    {
        config.head = HeadConfig::Words(WordsConfig {
            tied: false,
            ..words
        });
    }
    // A model without heads may be saved without its pooler, which its config.json does not tell.
    let pooled = (names.find("pooler.map.weight")).is_some_and(|(theirs, _)| lookup.has(&theirs));
    if names.bare && config.classes.is_none() && !pooled {
        config.pooler = None;
    }
    config
}

/// Whether a file holds a matrix of scores of its own, though the embedding's is said to serve.
fn has_own_head(names: &Names, lookup: &Lookup, file: &TensorFile) -> bool {
    let there = |ours: &str| {
        let (theirs, _) = names.find(ours)?;
        lookup.name(&theirs)
    };
    let (Some(head), Some(tokens)) = (there("words.weight"), there("stack.tokens.weight")) else {
        return false;
    };
    // Most files that hold both hold a copy.
    file.shape(head) == file.shape(tokens)
        && match (file.floats(head), file.floats(tokens)) {
            (Ok(head), Ok(tokens)) => head != tokens,
            _ => false,
        }
}
