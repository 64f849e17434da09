//! What a model's files ask of every text, however its tokens are chosen: how it begins and ends, and what may not occur.
//! Each rule after Hugging Face's definition.

use attentive_model::checkpoint::{
    Bias, CheckpointError, EndPull, GenerationSettings, SpecialTokens,
};

use crate::SettingError;
use crate::filters::penalize_repetition;

/// Rules for the tokens that are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// What a decoder that looks at an encoder starts with. It is not part of the text.
    pub start: Option<u32>,
    /// What fills up the shorter of several sources.
    pub padding: Option<u32>,
    /// Tokens that end a text; they are not part of it.
    pub end: Vec<u32>,
    /// The first token, where all that stands before it is one token.
    pub first: Option<u32>,
    /// The last token, one of these, of a text that gets as long as it may.
    pub last: Vec<u32>,
    /// No text ends before it has so many tokens.
    pub fewest_tokens: usize,
    /// No so many tokens in a row occur twice. Paulus et al. 2017.
    pub no_repeat: Option<usize>,
    /// No so many tokens in a row are those of the source, or of the prompt.
    pub no_repeat_of_source: Option<usize>,
    /// Divides the scores of tokens that already occurred. Keskar et al. 2019.
    pub repetition_penalty: Option<f64>,
    /// Multiplies the scores of the tokens of the source, or of the prompt.
    pub source_boost: Option<f64>,
    /// Tokens, or several in a row, that never occur.
    pub forbidden: Vec<Vec<u32>>,
    /// Tokens that never occur.
    pub suppressed: Vec<u32>,
    /// Tokens that do not come first, or after `first`.
    pub suppressed_first: Vec<u32>,
    /// What is added to the scores of tokens.
    pub biases: Vec<Bias>,
    /// How the end becomes likelier in long texts.
    pub end_pull: Option<EndPull>,
}

/// Where in a text the next token stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// What the encoder read, or the prompt.
    pub source: &'a [u32],
    /// All tokens before it, with the prompt or the decoder's start.
    pub seen: &'a [u32],
    /// How many of them were made.
    pub made: usize,
    /// The most tokens to make.
    pub most: usize,
}

impl Rules {
    /// Nothing but what ends a text.
    pub fn ending(end: Vec<u32>) -> Self {
        Self {
            end,
            ..Self::default()
        }
    }

    /// The rules of a model folder for texts that follow so many tokens; an error where a setting of the folder would make
    /// other texts than these rules do.
    pub fn of_folder(
        special: &SpecialTokens,
        settings: &GenerationSettings,
        before: usize,
    ) -> Result<Self, CheckpointError> {
        settings.check()?;
        let shortest = settings.shortest.unwrap_or(0).saturating_sub(before);
        Ok(Self {
            start: special.decoder_start.or(special.beginning),
            padding: special.padding,
            end: special.end.clone(),
            first: settings.first,
            last: settings.last.clone(),
            fewest_tokens: settings.fewest_tokens.unwrap_or(0).max(shortest),
            no_repeat: settings.no_repeat.filter(|size| *size > 0),
            no_repeat_of_source: settings.no_repeat_of_source.filter(|size| *size > 0),
            repetition_penalty: settings.repetition_penalty,
            source_boost: settings.source_boost,
            forbidden: settings.forbidden.clone(),
            suppressed: settings.suppressed.clone(),
            suppressed_first: settings.suppressed_first.clone(),
            biases: settings.biases.clone(),
            end_pull: settings.end_pull,
        })
    }

    /// Whether every number is in its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let fits = |value: f64| value > 0.0 && value.is_finite();
        let [penalty, boost] =
            [self.repetition_penalty, self.source_boost].map(|it| it.unwrap_or(1.0));
        let factor = self.end_pull.map_or(1.0, |it| it.factor);
        SettingError::first([
            ("repetition-penalty", penalty, fits(penalty), "more than 0"),
            ("source-boost", boost, fits(boost), "more than 0"),
            ("end-pull", factor, factor.is_finite(), "a finite number"),
        ])
    }

    /// Changes the scores of the next token, in the order of Hugging Face. Tokens that may not come get minus infinity.
    pub(crate) fn apply(&self, scores: &mut [f32], place: Place) {
        let seen = place.seen;
        for bias in &self.biases {
            if let Some(last) = completed(&bias.ids, seen)
                && let Some(score) = scores.get_mut(last as usize)
            {
                *score += bias.bias as f32;
            }
        }
        penalize_repetition(scores, place.source, 1.0 / self.source_boost.unwrap_or(1.0));
        penalize_repetition(scores, seen, self.repetition_penalty.unwrap_or(1.0));
        for (size, text) in [
            (self.no_repeat, seen),
            (self.no_repeat_of_source, place.source),
        ] {
            if let Some(size) = size {
                forbid_repeats(scores, size, text, seen);
            }
        }
        for words in &self.forbidden {
            // Whoever forbids the end means a text without one, which no model can be made to write.
            let is_end = matches!(words.as_slice(), [one] if self.end.contains(one));
            if let Some(last) = completed(words, seen).filter(|_| !is_end) {
                forbid(scores, &[last]);
            }
        }
        if place.made < self.fewest_tokens {
            forbid(scores, &self.end);
        }
        if let (Some(first), 1) = (self.first, seen.len()) {
            force(scores, &[first]);
        }
        if !self.last.is_empty() && place.made + 1 == place.most {
            force(scores, &self.last);
        }
        if let Some(pull) = self.end_pull.filter(|pull| place.made > pull.after) {
            let growth = pull.factor.powf((place.made - pull.after) as f64) - 1.0;
            for id in &self.end {
                if let Some(score) = scores.get_mut(*id as usize).filter(|it| it.is_finite()) {
                    *score += (f64::from(score.abs()) * growth) as f32;
                }
            }
        }
        forbid(scores, &self.suppressed);
        let before = seen.len() - place.made;
        let forced = usize::from(before == 1 && self.first.is_some());
        if place.made == forced {
            forbid(scores, &self.suppressed_first);
        }
    }

    /// The tokens that the rules put somewhere, with what for.
    pub(crate) fn put(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let first = self.first.map(|id| ("the first token", id));
        let last = self.last.iter().map(|id| ("the last token", *id));
        let biased = self.biases.iter().flat_map(|it| &it.ids);
        let biased = biased.map(|id| ("a token with a bias", *id));
        first.into_iter().chain(last).chain(biased)
    }
}

/// The last of some tokens in a row, if the others stand last in what was seen.
fn completed(words: &[u32], seen: &[u32]) -> Option<u32> {
    let (last, before) = words.split_last()?;
    seen.ends_with(before).then_some(*last)
}

/// Forbids tokens that would end so many in a row that are in `text` already.
fn forbid_repeats(scores: &mut [f32], size: usize, text: &[u32], seen: &[u32]) {
    if seen.len() + 1 < size {
        return;
    }
    let tail = &seen[seen.len() + 1 - size..];
    for window in text.windows(size) {
        if let Some((next, before)) = window.split_last()
            && before == tail
        {
            forbid(scores, &[*next]);
        }
    }
}

fn forbid(scores: &mut [f32], ids: &[u32]) {
    for id in ids {
        if let Some(score) = scores.get_mut(*id as usize) {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Leaves nothing but these tokens, as sure as can be.
fn force(scores: &mut [f32], ids: &[u32]) {
    scores.fill(f32::NEG_INFINITY);
    for id in ids {
        scores[*id as usize] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of eight tokens may follow.
    fn allowed(rules: &Rules, seen: &[u32], made: usize, most: usize) -> Vec<usize> {
        let mut scores = [0.5; 8];
        let source = &[4, 5];
        rules.apply(
            &mut scores,
            Place {
                source,
                seen,
                made,
                most,
            },
        );
        let scores = scores.iter().enumerate();
        scores
            .filter(|(_, score)| score.is_finite())
            .map(|(id, _)| id)
            .collect()
    }

    fn check(rules: Rules, seen: &[u32], expected: &[usize]) {
        assert_eq!(
            allowed(&rules, seen, seen.len() - 1, 6),
            expected,
            "{rules:?} after {seen:?}"
        );
    }

    #[test]
    fn no_tokens_in_a_row_occur_twice() {
        let rules = |size| Rules {
            no_repeat: Some(size),
            ..Rules::default()
        };
        check(rules(1), &[3, 5], &[0, 1, 2, 4, 6, 7]);
        check(rules(2), &[3, 5, 3], &[0, 1, 2, 3, 4, 6, 7]);
        check(rules(3), &[3, 5, 1, 3, 5], &[0, 2, 3, 4, 5, 6, 7]);
        check(rules(3), &[3, 5], &[0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn forbidden_tokens_never_occur_and_the_end_is_none_of_them() {
        let rules = Rules {
            end: vec![2],
            forbidden: vec![vec![2], vec![4], vec![1, 6], vec![9]],
            ..Rules::default()
        };
        check(rules.clone(), &[0, 1], &[0, 1, 2, 3, 5, 7]);
        check(rules, &[1, 0], &[0, 1, 2, 3, 5, 6, 7]);
    }

    #[test]
    fn first_and_last_tokens_are_forced_and_no_text_is_too_short() {
        let rules = Rules {
            end: vec![2, 7],
            first: Some(3),
            last: vec![2, 7],
            fewest_tokens: 2,
            ..Rules::default()
        };
        check(rules.clone(), &[0], &[3]);
        check(rules.clone(), &[0, 3], &[0, 1, 3, 4, 5, 6]);
        check(rules.clone(), &[0, 3, 4], &[0, 1, 2, 3, 4, 5, 6, 7]);
        check(rules, &[0, 3, 4, 4, 4, 4], &[2, 7]);
    }

    #[test]
    fn tokens_of_the_source_and_at_the_beginning_can_be_ruled_out() {
        let rules = Rules {
            no_repeat_of_source: Some(2),
            suppressed: vec![7, 9],
            suppressed_first: vec![0],
            ..Rules::default()
        };
        check(rules.clone(), &[3], &[1, 2, 3, 4, 5, 6]);
        check(rules.clone(), &[3, 4], &[0, 1, 2, 3, 4, 6]);
        let forced = Rules {
            first: Some(3),
            ..rules
        };
        check(forced.clone(), &[2], &[3]);
        check(forced, &[2, 3], &[1, 2, 3, 4, 5, 6]);
    }
}
