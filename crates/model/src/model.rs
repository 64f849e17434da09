//! A transformer: a stack of blocks, its heads, and the encoder that its cross-attention reads.

use std::ops::Range;

use attentive_tensor::Randomness;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::attention::Memory;
use crate::embeddings::AdaptiveSoftmax;
use crate::head::{ClassLogits, HeadConfig, LmHead, Pooler, SequenceClassifier, TokenClassifier};
use crate::{
    ConfigError, ForwardOptions, HiddenStates, Initializer, Input, InputData, Linear, ModelConfig,
    Stack,
};

/// A transformer with its heads. The names of its fields are those of saved tensors.
#[derive(Module, Debug)]
pub struct Model {
    stack: Stack,
    encoder: Option<Stack>,
    /// The projection from the encoder's width to the stack's, where they differ.
    bridge: Option<Linear>,
    lm_head: Option<LmHead>,
    adaptive: Option<AdaptiveSoftmax>,
    pooler: Option<Pooler>,
    sequence_classifier: Option<SequenceClassifier>,
    token_classifier: Option<TokenClassifier>,
    #[module(skip)]
    config: ModelConfig,
}

/// The result of a forward pass.
#[derive(Clone, Debug)]
pub struct Output {
    /// The last hidden states, `[batch, length, width]`.
    pub hidden: Tensor<3>,
    /// Logits over the vocabulary, `[batch, length, vocabulary]`: of the next token, or of a masked one.
    pub logits: Option<Tensor<3>>,
    /// A vector for each sequence, `[batch, width]`.
    pub pooled: Option<Tensor<2>>,
    /// Logits over the classes of each sequence.
    pub class_logits: Option<ClassLogits>,
    /// Logits over the labels of each token, `[batch, length, labels]`.
    pub token_logits: Option<Tensor<3>>,
    /// What training adds to its loss; see [`HiddenStates::auxiliary_loss`].
    pub auxiliary_loss: Option<Tensor<1>>,
}

impl Output {
    /// Logits over the vocabulary, `[batch, length, vocabulary]`.
    ///
    /// # Panics
    /// When the model has no language-model head.
    pub fn into_logits(self) -> Tensor<3> {
        self.logits
            .expect("output: the model has no language-model head")
    }
}

impl Model {
    /// Builds a model with fresh weights, sampled from `seed` when they are first used.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ConfigError> {
        config.validate()?;
        let initializer = &mut Initializer::new(seed, device);
        let stack = &config.stack;
        let (width, std) = (stack.width, stack.init_std);
        let states = stack.states_width();
        let pooled = (config.pooler.as_ref()).map_or(states, |it| it.width(stack));
        Ok(Self {
            stack: Stack::new(stack, initializer),
            lm_head: (config.head.lm_head()).map(|head| LmHead::new(&head, stack, initializer)),
            adaptive: match (&config.head, &stack.embedding.adaptive) {
                (HeadConfig::Adaptive(head), Some(embedding)) => {
                    Some(AdaptiveSoftmax::new(head, embedding, stack, initializer))
                }
                _ => None,
            },
            encoder: (config.encoder.as_ref()).map(|encoder| Stack::new(encoder, initializer)),
            bridge: (config.encoder.as_ref())
                .filter(|encoder| encoder.width != width)
                .map(|encoder| Linear::new(encoder.width, width, true, std, initializer)),
            pooler: (config.pooler.as_ref()).map(|it| Pooler::new(it, stack, initializer)),
            sequence_classifier: (config.sequence_classifier.as_ref())
                .map(|it| SequenceClassifier::new(it, stack, pooled, initializer)),
            token_classifier: (config.token_classifier.as_ref())
                .map(|it| TokenClassifier::new(it, stack, initializer)),
            config: config.clone(),
        })
    }

    /// The settings it was built from.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device of its weights.
    pub fn device(&self) -> Device {
        self.stack.device()
    }

    /// Resamples random features when due: a Performer's, if their settings say so.
    #[must_use]
    pub fn resample_features(self, step: u64) -> Self {
        Self {
            stack: self.stack.resample_features(step),
            encoder: self.encoder.map(|encoder| encoder.resample_features(step)),
            ..self
        }
    }

    /// Runs the encoder; the result is the memory of the decoder's cross-attention.
    ///
    /// # Panics
    /// When the model has no encoder.
    pub fn encode(&self, input: Input, options: ForwardOptions) -> Memory {
        let encoder = self.encoder.as_ref();
        let encoder = encoder.expect("encode: the model has no encoder");
        let shared = encoder.config().embedding.shared;
        let non_padding = input.non_padding.clone();
        let shared = shared.then(|| self.stack.tokens());
        let mut states = encoder.forward(input, shared, options).states;
        if let Some(bridge) = &self.bridge {
            states = bridge.forward(states);
        }
        Memory {
            non_padding,
            ..Memory::new(states)
        }
    }

    /// A forward pass through the stack and all heads.
    pub fn forward(&self, input: Input, options: ForwardOptions) -> Output {
        let (non_padding, data) = (input.non_padding.clone(), input.data.clone());
        let ForwardOptions {
            cache,
            observer,
            mut randomness,
        } = options;
        let stack_options = ForwardOptions {
            cache,
            // Reborrows the observer for a shorter lifetime.
            observer: match observer {
                Some(observer) => Some(observer),
                None => None,
            },
            randomness: randomness.as_deref_mut(),
        };
        let hidden = self.hidden_states(input, stack_options);
        self.apply_heads(hidden, &data, non_padding.as_deref(), randomness)
    }

    /// A forward pass without the heads.
    ///
    /// # Panics
    /// As [`Stack::forward`] does.
    pub fn hidden_states(&self, mut input: Input, options: ForwardOptions) -> HiddenStates {
        if let (InputData::Ids(ids), None, Some(classifier)) =
            (&input.data, &input.types, &self.token_classifier)
            && self.config.stack.embedding.types > 1
        {
            input.types = classifier.question_types(ids);
        }
        self.stack.forward(input, None, options)
    }

    fn apply_heads(
        &self,
        hidden: HiddenStates,
        data: &InputData,
        non_padding: Option<&[Range<usize>]>,
        mut randomness: Option<&mut Randomness>,
    ) -> Output {
        let HiddenStates {
            states,
            auxiliary_loss,
        } = hidden;
        let logits = self.vocabulary_logits(states.clone());
        let pooled = self.pooler.as_ref();
        let pooled = pooled.map(|pooler| pooler.forward(states.clone(), data, non_padding));
        let class_logits = match (&self.sequence_classifier, &pooled) {
            (Some(classifier), Some(pooled)) => {
                let randomness = randomness.as_deref_mut();
                Some(classifier.forward(pooled.clone(), states.clone(), randomness))
            }
            _ => None,
        };
        let classifier = self.token_classifier.as_ref();
        let token_logits = classifier.map(|it| it.forward(states.clone(), data, randomness));
        Output {
            hidden: states,
            logits,
            pooled,
            class_logits,
            token_logits,
            auxiliary_loss,
        }
    }

    /// Logits over the vocabulary of each hidden state.
    ///
    /// # Panics
    /// When the model has no language-model head.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        let logits = self.vocabulary_logits(hidden);
        logits.expect("logits: the model has no language-model head")
    }

    fn vocabulary_logits(&self, states: Tensor<3>) -> Option<Tensor<3>> {
        match (&self.lm_head, &self.adaptive) {
            (Some(head), _) => Some(head.forward(states, || self.stack.tokens())),
            (None, Some(adaptive)) => Some(adaptive.forward(states, self.stack.clusters())),
            (None, None) => None,
        }
    }
}
