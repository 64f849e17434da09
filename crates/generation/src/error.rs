//! Errors of generation, each as one sentence: what, where, what to do.

use attentive_text::TextError;

use crate::SettingsFileError;

/// Why a text cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// A setting is out of its range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A generation setting of the model's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] SettingsFileError),
    /// An option without effect, or one that another option excludes.
    #[error("{option}: {reason}; {advice}")]
    Conflict {
        /// The option.
        option: &'static str,
        /// Why it cannot be given.
        reason: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// An empty stop string.
    #[error("stop: an empty string would end every text at once; give a string or leave it out")]
    EmptyStopString,
    /// The model is not a decoder.
    #[error(
        "the model is not causal or has no language-modelling head, so it cannot generate text; give a decoder or an encoder-decoder"
    )]
    NoDecoder,
    /// The prompt has no tokens.
    #[error("the prompt is empty and the model has no beginning-of-text token; give a prompt")]
    EmptyPrompt,
    /// The encoder's input has no tokens.
    #[error("the source is empty; give a text for the encoder to read")]
    EmptySource,
    /// The prompt is too long.
    #[error("the prompt has {tokens} tokens and the model reads at most {length}; shorten it")]
    LongPrompt {
        /// Tokens of the prompt.
        tokens: usize,
        /// The model's length.
        length: usize,
    },
    /// The encoder's input is too long.
    #[error("the source has {tokens} tokens and the encoder reads at most {length}; shorten it")]
    LongSource {
        /// Tokens of the source.
        tokens: usize,
        /// The encoder's length.
        length: usize,
    },
    /// A token of the prompt does not exist.
    #[error("token id {id} is outside the vocabulary of {vocabulary}; use 0 to {}", vocabulary - 1)]
    UnknownId {
        /// The id.
        id: u32,
        /// The vocabulary of the model, or of its encoder.
        vocabulary: usize,
    },
    /// The decoder has no start token.
    #[error("the model's files have no decoder_start_token_id; add one to its generation settings")]
    NoStart,
    /// A setting names a token that does not exist.
    #[error(
        "{setting}: token {id} is outside the vocabulary of {vocabulary}; correct the model's generation settings"
    )]
    UnknownSpecialToken {
        /// The setting.
        setting: &'static str,
        /// The id.
        id: u32,
        /// The decoder's vocabulary.
        vocabulary: usize,
    },
    /// The tokenizer has tokens that the model lacks.
    #[error(
        "the tokenizer has {tokenizer} tokens and the model only {model}; use the tokenizer that the model was trained with"
    )]
    LargeTokenizer {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// The model's vocabulary.
        model: usize,
    },
    /// The logits processors mask the whole vocabulary.
    #[error("every next token is masked; loosen the model's generation settings")]
    AllTokensMasked,
    /// The logits are NaN or infinite.
    #[error("the model's logits are not finite; its weights are broken")]
    NonFiniteLogits,
    /// The tokens cannot be decoded.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A setting out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name}: {value} is out of range; use {range}")]
pub struct SettingError {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The valid range.
    pub range: String,
}

impl SettingError {
    /// The first of `(name, value, fits, range)` that is out of range.
    pub(crate) fn first<const N: usize>(
        checks: [(&'static str, f64, bool, &str); N],
    ) -> Result<(), Self> {
        match checks.into_iter().find(|(_, _, fits, _)| !fits) {
            Some((name, value, _, range)) => Err(Self {
                name,
                value,
                range: range.to_owned(),
            }),
            None => Ok(()),
        }
    }
}
