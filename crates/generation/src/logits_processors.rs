//! Logits processors: what a model's generation_config.json forces, forbids or penalizes in every text, whether it is sampled
//! or found by beam search. Each is defined, and ordered, as in Hugging Face's transformers.

use crate::filters::penalize_repetition;
use crate::{
    ExponentialDecayLengthPenalty, GenerationSettings, SequenceBias, SettingError,
    SettingsFileError, SpecialTokens,
};

/// The logits processors of a model and the special tokens that they need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitsProcessors {
    /// The first token of a decoder with cross-attention. It is not part of the text.
    pub decoder_start: Option<u32>,
    /// Pads the shorter of several sources.
    pub pad: Option<u32>,
    /// Tokens that end a text; they are not part of it.
    pub eos: Vec<u32>,
    /// Forced as the first new token, where one token precedes it.
    pub forced_bos: Option<u32>,
    /// One of these is forced as the last token of a text of maximum length.
    pub forced_eos: Vec<u32>,
    /// `eos` is suppressed before a text has this many new tokens.
    pub min_new_tokens: usize,
    /// No n-gram of this size occurs twice. Paulus et al. 2017.
    pub no_repeat_ngram_size: Option<usize>,
    /// No n-gram of this size is copied from the encoder's input, or from the prompt.
    pub encoder_no_repeat_ngram_size: Option<usize>,
    /// Divides the logits of tokens that already occurred. Keskar et al. 2019.
    pub repetition_penalty: Option<f64>,
    /// Multiplies the logits of the tokens of the encoder's input, or of the prompt.
    pub encoder_repetition_penalty: Option<f64>,
    /// Token sequences that never occur.
    pub bad_words: Vec<Vec<u32>>,
    /// Tokens that never occur.
    pub suppress_tokens: Vec<u32>,
    /// Tokens suppressed at the first position, or right after `forced_bos`.
    pub begin_suppress_tokens: Vec<u32>,
    /// Added to the logit that completes a token sequence.
    pub sequence_bias: Vec<SequenceBias>,
    /// Raises the logit of `eos` in long texts.
    pub exponential_decay_length_penalty: Option<ExponentialDecayLengthPenalty>,
}

/// The state of one sequence when its next token is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessorContext<'a> {
    /// The encoder's input, or the prompt.
    pub source: &'a [u32],
    /// All tokens so far, with the prompt or the decoder's start token.
    pub tokens: &'a [u32],
    /// How many of `tokens` were generated.
    pub generated: usize,
    /// The maximum number of generated tokens.
    pub max_new_tokens: usize,
}

impl LogitsProcessors {
    /// No processors, only the EOS tokens.
    pub fn with_eos(eos: Vec<u32>) -> Self {
        Self {
            eos,
            ..Self::default()
        }
    }

    /// The processors of a model folder for texts that follow `prompt_length` tokens; an error where a setting of the folder is
    /// not supported and would change the texts.
    pub fn from_settings(
        special: &SpecialTokens,
        settings: &GenerationSettings,
        prompt_length: usize,
    ) -> Result<Self, SettingsFileError> {
        settings.check()?;
        let min_length = settings.min_length.unwrap_or(0);
        let min_new_tokens = settings.min_new_tokens.unwrap_or(0);
        let positive = |size: &usize| *size > 0;
        Ok(Self {
            decoder_start: special.decoder_start.or(special.bos),
            pad: special.pad,
            eos: special.eos.clone(),
            forced_bos: settings.forced_bos,
            forced_eos: settings.forced_eos.clone(),
            min_new_tokens: min_new_tokens.max(min_length.saturating_sub(prompt_length)),
            no_repeat_ngram_size: settings.no_repeat_ngram_size.filter(positive),
            encoder_no_repeat_ngram_size: settings.encoder_no_repeat_ngram_size.filter(positive),
            repetition_penalty: settings.repetition_penalty,
            encoder_repetition_penalty: settings.encoder_repetition_penalty,
            bad_words: settings.bad_words.clone(),
            suppress_tokens: settings.suppress_tokens.clone(),
            begin_suppress_tokens: settings.begin_suppress_tokens.clone(),
            sequence_bias: settings.sequence_bias.clone(),
            exponential_decay_length_penalty: settings.exponential_decay_length_penalty,
        })
    }

    /// Whether every setting is in its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let fits = |value: f64| value > 0.0 && value.is_finite();
        let penalties = [self.repetition_penalty, self.encoder_repetition_penalty];
        let [penalty, encoder_penalty] = penalties.map(|it| it.unwrap_or(1.0));
        let decay = self.exponential_decay_length_penalty;
        let factor = decay.map_or(1.0, |it| it.decay_factor);
        SettingError::first([
            ("repetition_penalty", penalty, fits(penalty), "more than 0"),
            (
                "encoder_repetition_penalty",
                encoder_penalty,
                fits(encoder_penalty),
                "more than 0",
            ),
            (
                "exponential_decay_length_penalty",
                factor,
                factor.is_finite(),
                "a finite factor",
            ),
        ])
    }

    /// Processes the logits of the next token, in Hugging Face's order. A masked token gets minus infinity.
    pub(crate) fn apply(&self, logits: &mut [f32], context: ProcessorContext) {
        let ProcessorContext {
            source,
            tokens,
            generated,
            max_new_tokens,
        } = context;
        for SequenceBias { ids, bias } in &self.sequence_bias {
            if let Some(id) = completing_token(ids, tokens)
                && let Some(logit) = logits.get_mut(id as usize)
            {
                *logit += *bias as f32;
            }
        }
        let encoder_penalty = self.encoder_repetition_penalty.unwrap_or(1.0);
        penalize_repetition(logits, source, 1.0 / encoder_penalty);
        penalize_repetition(logits, tokens, self.repetition_penalty.unwrap_or(1.0));
        for (size, text) in [
            (self.no_repeat_ngram_size, tokens),
            (self.encoder_no_repeat_ngram_size, source),
        ] {
            if let Some(size) = size {
                mask_repeated_ngrams(logits, size, text, tokens);
            }
        }
        for sequence in &self.bad_words {
            // Hugging Face ignores a bad word that is a single EOS token: forbidding EOS is never intended.
            let is_eos = matches!(sequence.as_slice(), [one] if self.eos.contains(one));
            if let Some(id) = completing_token(sequence, tokens).filter(|_| !is_eos) {
                mask(logits, &[id]);
            }
        }
        if generated < self.min_new_tokens {
            mask(logits, &self.eos);
        }
        if let (Some(id), 1) = (self.forced_bos, tokens.len()) {
            force(logits, &[id]);
        }
        if !self.forced_eos.is_empty() && generated + 1 == max_new_tokens {
            force(logits, &self.forced_eos);
        }
        self.decay_length(logits, generated);
        mask(logits, &self.suppress_tokens);
        let prompt_length = tokens.len() - generated;
        let forced = usize::from(prompt_length == 1 && self.forced_bos.is_some());
        if generated == forced {
            mask(logits, &self.begin_suppress_tokens);
        }
    }

    fn decay_length(&self, logits: &mut [f32], generated: usize) {
        let penalty = self.exponential_decay_length_penalty;
        let Some(penalty) = penalty.filter(|it| generated > it.start_index) else {
            return;
        };
        let exponent = (generated - penalty.start_index) as f64;
        let growth = penalty.decay_factor.powf(exponent) - 1.0;
        for id in &self.eos {
            if let Some(logit) = logits.get_mut(*id as usize).filter(|it| it.is_finite()) {
                *logit += (f64::from(logit.abs()) * growth) as f32;
            }
        }
    }

    /// The tokens that must be in the vocabulary, with the settings that name them.
    pub(crate) fn required_tokens(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let bos = self.forced_bos.map(|id| ("forced_bos_token_id", id));
        let eos = self.forced_eos.iter();
        let eos = eos.map(|id| ("forced_eos_token_id", *id));
        let biased = self.sequence_bias.iter().flat_map(|it| &it.ids);
        let biased = biased.map(|id| ("sequence_bias", *id));
        bos.into_iter().chain(eos).chain(biased)
    }
}

/// The last token of a sequence, if `tokens` ends with all before it.
fn completing_token(sequence: &[u32], tokens: &[u32]) -> Option<u32> {
    let (last, before) = sequence.split_last()?;
    tokens.ends_with(before).then_some(*last)
}

/// Masks the tokens that would complete an n-gram of `text`.
fn mask_repeated_ngrams(logits: &mut [f32], size: usize, text: &[u32], tokens: &[u32]) {
    if tokens.len() + 1 < size {
        return;
    }
    let tail = &tokens[tokens.len() + 1 - size..];
    for ngram in text.windows(size) {
        if let Some((next, before)) = ngram.split_last()
            && before == tail
        {
            mask(logits, &[*next]);
        }
    }
}

fn mask(logits: &mut [f32], ids: &[u32]) {
    for id in ids {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Masks all other tokens.
fn force(logits: &mut [f32], ids: &[u32]) {
    logits.fill(f32::NEG_INFINITY);
    for id in ids {
        logits[*id as usize] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of eight tokens may follow.
    fn allowed(
        processors: &LogitsProcessors,
        tokens: &[u32],
        generated: usize,
        max_new_tokens: usize,
    ) -> Vec<usize> {
        let mut logits = [0.5; 8];
        let context = ProcessorContext {
            source: &[4, 5],
            tokens,
            generated,
            max_new_tokens,
        };
        processors.apply(&mut logits, context);
        let logits = logits.iter().enumerate();
        logits
            .filter(|(_, logit)| logit.is_finite())
            .map(|(id, _)| id)
            .collect()
    }

    fn check(processors: LogitsProcessors, tokens: &[u32], expected: &[usize]) {
        assert_eq!(
            allowed(&processors, tokens, tokens.len() - 1, 6),
            expected,
            "{processors:?} after {tokens:?}"
        );
    }

    #[test]
    fn no_ngram_occurs_twice() {
        let processors = |size| LogitsProcessors {
            no_repeat_ngram_size: Some(size),
            ..LogitsProcessors::default()
        };
        check(processors(1), &[3, 5], &[0, 1, 2, 4, 6, 7]);
        check(processors(2), &[3, 5, 3], &[0, 1, 2, 3, 4, 6, 7]);
        check(processors(3), &[3, 5, 1, 3, 5], &[0, 2, 3, 4, 5, 6, 7]);
        check(processors(3), &[3, 5], &[0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn bad_words_never_occur_but_eos_is_exempt() {
        let processors = LogitsProcessors {
            eos: vec![2],
            bad_words: vec![vec![2], vec![4], vec![1, 6], vec![9]],
            ..LogitsProcessors::default()
        };
        check(processors.clone(), &[0, 1], &[0, 1, 2, 3, 5, 7]);
        check(processors, &[1, 0], &[0, 1, 2, 3, 5, 6, 7]);
    }

    #[test]
    fn bos_and_eos_are_forced_and_the_minimum_length_holds() {
        let processors = LogitsProcessors {
            eos: vec![2, 7],
            forced_bos: Some(3),
            forced_eos: vec![2, 7],
            min_new_tokens: 2,
            ..LogitsProcessors::default()
        };
        check(processors.clone(), &[0], &[3]);
        check(processors.clone(), &[0, 3], &[0, 1, 3, 4, 5, 6]);
        check(processors.clone(), &[0, 3, 4], &[0, 1, 2, 3, 4, 5, 6, 7]);
        check(processors, &[0, 3, 4, 4, 4, 4], &[2, 7]);
    }

    #[test]
    fn ngrams_of_the_source_and_tokens_at_the_beginning_can_be_suppressed() {
        let processors = LogitsProcessors {
            encoder_no_repeat_ngram_size: Some(2),
            suppress_tokens: vec![7, 9],
            begin_suppress_tokens: vec![0],
            ..LogitsProcessors::default()
        };
        check(processors.clone(), &[3], &[1, 2, 3, 4, 5, 6]);
        check(processors.clone(), &[3, 4], &[0, 1, 2, 3, 4, 6]);
        let forced = LogitsProcessors {
            forced_bos: Some(3),
            ..processors
        };
        check(forced.clone(), &[2], &[3]);
        check(forced, &[2, 3], &[1, 2, 3, 4, 5, 6]);
    }
}
