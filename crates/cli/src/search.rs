//! From arguments and what a model folder says to the settings of a search.

use anyhow::Result;
use attentive::generation::{BeamConfig, Changes, Rules, SearchEnd};
use attentive::model::checkpoint::{Description, GenerationSettings};

use crate::arguments::{EarlyStopping, SearchArguments};

/// The most tokens to make where nobody says how many.
const MOST_TOKENS: usize = 200;

/// A search with what is left out taken from the folder.
pub fn beam_config(
    arguments: &SearchArguments,
    description: &Description,
    beams: usize,
    max_tokens: usize,
    rules: Rules,
) -> BeamConfig {
    let settings = &description.generation;
    let end = arguments.early_stopping.map(|when| match when {
        EarlyStopping::True => SearchEnd::Full,
        EarlyStopping::False => SearchEnd::Unlikely,
        EarlyStopping::Never => SearchEnd::Impossible,
    });
    BeamConfig {
        max_tokens,
        beams,
        returned: 1,
        length_penalty: arguments
            .length_penalty
            .or(settings.length_penalty)
            .unwrap_or(1.0),
        end: end.or(settings.search_end).unwrap_or_default(),
        changes: match settings.renormalized {
            Some(true) => Changes::Shared,
            _ => Changes::Lost,
        },
        possible: None,
        rules,
    }
}

/// The most tokens to make after `before` others.
pub fn most_tokens(
    given: Option<usize>,
    settings: &GenerationSettings,
    before: usize,
) -> Result<usize> {
    Ok(match given {
        Some(most) => most,
        None => settings.most_tokens(before)?.unwrap_or(MOST_TOKENS),
    })
}
