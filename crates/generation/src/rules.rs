//! What a model's files ask of every text, however its tokens are chosen: how it begins and ends, and what may not occur.
//! Each rule after Hugging Face's definition.

use attentive_model::checkpoint::{GenerationSettings, SpecialTokens};

/// Rules for the tokens that are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Tokens, or several in a row, that never occur.
    pub forbidden: Vec<Vec<u32>>,
}

/// Where in a text the next token stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
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

    /// The rules of a model folder for texts that follow so many tokens.
    pub fn of_folder(
        special: &SpecialTokens,
        settings: &GenerationSettings,
        before: usize,
    ) -> Self {
        let shortest = settings.shortest.unwrap_or(0).saturating_sub(before);
        Self {
            start: special.decoder_start.or(special.beginning),
            padding: special.padding,
            end: special.end.clone(),
            first: settings.first,
            last: settings.last.clone(),
            fewest_tokens: settings.fewest_tokens.unwrap_or(0).max(shortest),
            no_repeat: settings.no_repeat,
            forbidden: settings.forbidden.clone(),
        }
    }

    /// Gives tokens that may not come next a score of minus infinity.
    pub(crate) fn apply(&self, scores: &mut [f32], place: Place) {
        let seen = place.seen;
        let mut forbid = |id: u32| {
            if let Some(score) = scores.get_mut(id as usize) {
                *score = f32::NEG_INFINITY;
            }
        };
        if let Some(size) = self.no_repeat.filter(|size| seen.len() >= *size) {
            let tail = &seen[seen.len() + 1 - size..];
            let windows = seen.windows(size);
            windows
                .filter_map(|window| window.split_last())
                .filter(|(_, before)| *before == tail)
                .for_each(|(next, _)| forbid(*next));
        }
        for words in &self.forbidden {
            // Whoever forbids the end means a text without one, which no model can be made to write.
            let is_end = matches!(words.as_slice(), [one] if self.end.contains(one));
            match words.split_last() {
                Some((last, before)) if !is_end && seen.ends_with(before) => forbid(*last),
                _ => {}
            }
        }
        if place.made < self.fewest_tokens {
            self.end.iter().for_each(|id| forbid(*id));
        }
        if let (Some(first), 1) = (self.first, seen.len()) {
            force(scores, &[first]);
        }
        if !self.last.is_empty() && place.made + 1 == place.most {
            force(scores, &self.last);
        }
    }

    /// The tokens that the rules put somewhere, with what for.
    pub(crate) fn put(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let first = self.first.map(|id| ("the first token", id));
        let last = self.last.iter().map(|id| ("the last token", *id));
        first.into_iter().chain(last)
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
        rules.apply(&mut scores, Place { seen, made, most });
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
}
