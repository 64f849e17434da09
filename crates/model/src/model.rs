//! A transformer: a stack of blocks, the heads that read it, and the encoder that it may look at.

use std::ops::Range;

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::{
    Adaptive, ClassScores, Classes, ConfigError, Extras, FeedForward, HeadConfig, Hidden,
    Initializer, Input, Linear, Memory, ModelConfig, Pass, Pooler, Source, Stack, Sublayer, Words,
};

/// A transformer with its heads.
#[derive(Module, Debug)]
pub struct Model {
    stack: Stack,
    encoder: Option<Stack>,
    /// From the encoder's width to the stack's, where they differ.
    bridge: Option<Linear>,
    words: Option<Words>,
    adaptive: Option<Adaptive>,
    pooler: Option<Pooler>,
    classes: Option<Classes>,
    labels_layer: Option<Sublayer<FeedForward>>,
    labels: Option<Linear>,
    #[module(skip)]
    config: ModelConfig,
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Output {
    /// What the heads read, `[batch, length, width]`.
    pub hidden: Tensor<3>,
    /// Scores of the vocabulary, `[batch, length, vocabulary]`: of the next token, or of one that is hidden.
    pub words: Option<Tensor<3>>,
    /// A vector for each sequence, `[batch, width]`.
    pub pooled: Option<Tensor<2>>,
    /// Scores of the classes of each sequence.
    pub classes: Option<ClassScores>,
    /// Scores of the labels of each position, `[batch, length, labels]`.
    pub labels: Option<Tensor<3>>,
    /// What training adds to its loss; see [`Hidden::auxiliary_loss`].
    pub auxiliary_loss: Option<Tensor<1>>,
}

impl Output {
    /// Scores of the vocabulary, `[batch, length, vocabulary]`.
    ///
    /// # Panics
    /// When the model gives none.
    pub fn into_words(self) -> Tensor<3> {
        let words = self.words;
        words.expect("output: the model has no head that scores the vocabulary")
    }
}

impl Model {
    /// Builds a model with fresh weights, drawn from `seed` when they are first used.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ConfigError> {
        config.validate()?;
        let initial = &mut Initializer::new(seed, device);
        let (width, deviation) = (config.width, config.initial_deviation);
        let states = config.states_width();
        let pooled = (config.pooler.as_ref()).map_or(states, |it| it.width(config));
        Ok(Self {
            stack: Stack::new(config, initial),
            words: (config.head.words()).map(|words| Words::new(&words, config, initial)),
            adaptive: match (&config.head, &config.embedding.clusters) {
                (HeadConfig::Adaptive(head), Some(clusters)) => {
                    Some(Adaptive::new(head, clusters, config, initial))
                }
                _ => None,
            },
            encoder: (config.encoder.as_ref()).map(|encoder| Stack::new(encoder, initial)),
            bridge: (config.encoder.as_ref())
                .filter(|encoder| encoder.width != width)
                .map(|encoder| Linear::new(encoder.width, width, true, deviation, initial)),
            pooler: (config.pooler.as_ref()).map(|pooler| Pooler::new(pooler, config, initial)),
            classes: (config.classes.as_ref())
                .map(|classes| Classes::new(classes, config, pooled, initial)),
            labels_layer: (config.labels.as_ref())
                .and_then(|labels| labels.build_layer(config, initial)),
            labels: (config.labels.as_ref())
                .map(|labels| Linear::new(states, labels.labels, true, deviation, initial)),
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

    /// Draws anew what is drawn anew at this step: a Performer's features, if their settings say so.
    #[must_use]
    pub fn redraw(self, step: u64) -> Self {
        Self {
            stack: self.stack.redraw(step),
            encoder: self.encoder.map(|encoder| encoder.redraw(step)),
            ..self
        }
    }

    /// Reads the sequence that the decoder looks at.
    ///
    /// # Panics
    /// When the model has no encoder.
    pub fn encode(&self, input: Input, extras: Extras) -> Memory {
        let encoder = self.encoder.as_ref();
        let encoder = encoder.expect("encode: the model has no encoder");
        let shared = encoder.config().embedding.shared;
        let real = input.keys.clone();
        let shared = shared.then(|| self.stack.tokens());
        let mut states = encoder.forward(input, shared, extras).states;
        if let Some(bridge) = &self.bridge {
            states = bridge.forward(states);
        }
        Memory {
            real,
            ..Memory::new(states)
        }
    }

    /// A pass through the stack and all heads.
    pub fn forward(&self, input: Input, extras: Extras) -> Output {
        let (real, source) = (input.keys.clone(), input.source.clone());
        let Extras {
            cache,
            observer,
            mut randomness,
        } = extras;
        let inside = Extras {
            cache,
            // Said anew, an observer may be borrowed for a shorter time.
            observer: match observer {
                Some(observer) => Some(observer),
                None => None,
            },
            randomness: randomness.as_deref_mut(),
        };
        let hidden = self.hidden(input, inside);
        self.read(hidden, &source, real.as_deref(), randomness)
    }

    /// The hidden states that the heads read.
    ///
    /// # Panics
    /// As [`Stack::forward`] does.
    pub fn hidden(&self, input: Input, extras: Extras) -> Hidden {
        self.stack.forward(input, None, extras)
    }

    /// What the heads make of hidden states.
    fn read(
        &self,
        hidden: Hidden,
        source: &Source,
        real: Option<&[Range<usize>]>,
        mut randomness: Option<&mut Randomness>,
    ) -> Output {
        let Hidden {
            states,
            auxiliary_loss,
        } = hidden;
        let words = self.scores(states.clone());
        let pooled = self.pooler.as_ref();
        let pooled = pooled.map(|pooler| pooler.forward(states.clone(), source, real));
        let classes = match (&self.classes, &pooled) {
            (Some(classes), Some(pooled)) => {
                let randomness = randomness.as_deref_mut();
                Some(classes.forward(pooled.clone(), states.clone(), randomness))
            }
            _ => None,
        };
        let labels = match (&self.labels, &self.config.labels) {
            (Some(labels), Some(config)) => {
                let states = self.before_labels(states.clone(), randomness.as_deref_mut());
                let states = dropout(states, config.dropout, randomness);
                Some(config.after_question(labels.forward(states), source))
            }
            _ => None,
        };
        Output {
            hidden: states,
            words,
            pooled,
            classes,
            labels,
            auxiliary_loss,
        }
    }

    /// States after the layer before the labels, where there is one.
    fn before_labels(&self, states: Tensor<3>, randomness: Option<&mut Randomness>) -> Tensor<3> {
        let Some(layer) = &self.labels_layer else {
            return states;
        };
        let mut pass = Pass {
            randomness,
            ..Pass::default()
        };
        let stream = layer.forward(states.into(), &mut pass, |feed_forward, x, pass| {
            feed_forward.forward(x, pass)
        });
        stream.whole()
    }

    /// Scores of the vocabulary for each hidden state.
    ///
    /// # Panics
    /// When the model has no head for them.
    pub fn words(&self, hidden: Tensor<3>) -> Tensor<3> {
        let words = self.scores(hidden);
        words.expect("words: the model has no head that scores the vocabulary")
    }

    fn scores(&self, states: Tensor<3>) -> Option<Tensor<3>> {
        match (&self.words, &self.adaptive) {
            (Some(words), _) => Some(words.forward(states, || self.stack.tokens())),
            (None, Some(adaptive)) => Some(adaptive.forward(states, self.stack.clusters())),
            (None, None) => None,
        }
    }
}
