//! Why nothing can be generated, each as one sentence: what, where, what to do.

use attentive_text::TextError;

/// Why nothing can be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// A setting is out of its range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The model is no decoder.
    #[error(
        "the model continues no text, since it sees later tokens or scores none; give a decoder or an encoder-decoder"
    )]
    NoDecoder,
    /// The prompt has no tokens.
    #[error(
        "the prompt is empty, and the model has no token that a text begins with; give a prompt"
    )]
    EmptyPrompt,
    /// There is nothing for the encoder to read.
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
    /// The encoder's text is too long.
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
        /// The vocabulary of the stack that reads it.
        vocabulary: usize,
    },
    /// Nobody says what the decoder starts with.
    #[error(
        "the model's files name no token that its decoder starts with; add one to its generation settings"
    )]
    NoStart,
    /// The model's files name a token that does not exist.
    #[error(
        "the model's files want {role} to be {id}, which is outside the vocabulary of {vocabulary}; correct the model's generation settings"
    )]
    UnknownSpecial {
        /// What the token is for.
        role: &'static str,
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
    /// No token may come next.
    #[error(
        "every token that could come next is forbidden; loosen the rules of the model's generation settings"
    )]
    NothingAllowed,
    /// The model is broken.
    #[error("the model gives scores that are not numbers; its weights are broken")]
    NotANumber,
    /// The tokens cannot be made text.
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
    /// The values that work.
    pub range: String,
}

impl SettingError {
    /// The first of `(name, value, fits, range)` that does not fit.
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
