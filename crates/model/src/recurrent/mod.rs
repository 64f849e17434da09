//! A recurrent encoder-decoder with additive attention. Bahdanau et al. 2015.
//!
//! ```text
//! source ids → encoder → states ─────────────┐ additive attention, asked by the decoder's state
//!                  └ last states → bridge → decoder step → decoder step → …
//!                                             ↑ target id      └ hidden → scores of the vocabulary
//! ```
//!
//! As in "Dive into Deep Learning" (Zhang et al. 2023), scores are a linear map of the last layer's state, where the paper has a
//! maxout layer of state, token and context.

mod bridge;
mod cell;
mod config;
mod decoder;
mod encoder;
mod greedy;
mod steps;

use std::ops::Range;

use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

pub use cell::{Cell, CellState};
pub use config::{CellKind, Directions, FirstState, RecurrentConfig};
pub use greedy::Greedy;
pub use steps::Sequences;

use crate::{ConfigError, Initializer, Linear, Observer, Pass};
use bridge::Bridge;
use decoder::{Decoder, Written};
use encoder::{Encoder, Read};

/// A recurrent encoder-decoder.
#[derive(Module, Debug)]
pub struct Recurrent {
    encoder: Encoder,
    bridge: Vec<Bridge>,
    decoder: Decoder,
    words: Linear,
    #[module(skip)]
    config: RecurrentConfig,
}

/// What may go beside a pass.
#[derive(Default)]
pub struct RecurrentExtras<'a> {
    /// Who looks on. The attention is that of layer 0 and role cross, and it is seen once per step, with one query: what the
    /// observer returns for a step changes the steps after it. There is no residual stream to see.
    pub observer: Option<&'a mut dyn Observer>,
    /// The source of dropout; without it nothing is dropped.
    pub randomness: Option<&'a mut Randomness>,
}

impl<'a> RecurrentExtras<'a> {
    fn pass(self) -> Pass<'a> {
        Pass {
            observer: self.observer,
            randomness: self.randomness,
            ..Pass::default()
        }
    }
}

/// A source as the decoder looks at it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// What is gathered, `[batch, length, memory width]`; zeros at padding.
    pub states: Tensor<3>,
    /// What is compared with, `[batch, length, attention width]`: mapped once, for all steps.
    pub keys: Tensor<3>,
    /// Where padding leaves real positions, one range per batch row.
    pub real: Option<Vec<Range<usize>>>,
    /// The decoder's first state, layer by layer.
    pub first: Vec<CellState>,
}

/// What the decoder gives.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// Scores of the next token, `[batch, length, vocabulary]`. Those at padding mean nothing.
    pub words: Tensor<3>,
    /// What they are made from, `[batch, length, hidden_width]`; zeros at padding.
    pub hidden: Tensor<3>,
    /// The state after the last step, layer by layer.
    pub state: Vec<CellState>,
    /// The attention's weights, `[batch, 1, length, source length]`, if the observer asked for them.
    pub weights: Option<Tensor<4>>,
}

impl Recurrent {
    /// Builds a model with fresh weights, drawn from `seed` when they are first used.
    pub fn new(config: &RecurrentConfig, seed: u64, device: &Device) -> Result<Self, ConfigError> {
        config.validate()?;
        let initial = &mut Initializer::new(seed, device);
        let (width, deviation) = (config.hidden_width, config.initial_deviation);
        Ok(Self {
            encoder: Encoder::new(config, initial),
            bridge: (0..config.layers)
                .map(|_| Bridge::new(config, initial))
                .collect(),
            decoder: Decoder::new(config, initial),
            words: Linear::new(width, config.target_vocabulary, true, deviation, initial),
            config: config.clone(),
        })
    }

    /// The settings it was built from.
    pub fn config(&self) -> &RecurrentConfig {
        &self.config
    }

    /// The device of its weights.
    pub fn device(&self) -> Device {
        self.words.weight.lazy_device()
    }

    /// Reads the source.
    ///
    /// # Panics
    /// When it is empty or longer than the model's length, or its ranges do not fit.
    pub fn encode(&self, source: &Sequences, extras: RecurrentExtras) -> Encoded {
        self.read(source, &mut extras.pass())
    }

    /// Goes on from a state, the one that [`Recurrent::encode`] or an earlier call gave, over tokens that are known: all of a
    /// target at once, or the one that was chosen last.
    ///
    /// # Panics
    /// When the tokens are none or more than the model's length, or shapes do not fit.
    pub fn decode(
        &self,
        target: &Sequences,
        encoded: &Encoded,
        state: Vec<CellState>,
        extras: RecurrentExtras,
    ) -> Decoded {
        self.write(target, encoded, state, &mut extras.pass())
    }

    /// Scores of the token after each of `target`, which is given whole (Williams and Zipser 1989: teacher forcing).
    ///
    /// # Panics
    /// As [`Recurrent::encode`] and [`Recurrent::decode`] do.
    pub fn forward(
        &self,
        source: &Sequences,
        target: &Sequences,
        extras: RecurrentExtras,
    ) -> Decoded {
        let pass = &mut extras.pass();
        let encoded = self.read(source, pass);
        let first = encoded.first.clone();
        self.write(target, &encoded, first, pass)
    }

    fn read(&self, source: &Sequences, pass: &mut Pass) -> Encoded {
        source.check("encode", self.config.length);
        let Read { outputs, last } = self.encoder.forward(source, pass);
        let bridges = self.bridge.iter().zip(last);
        Encoded {
            keys: self.decoder.attention.map_keys(outputs.clone()),
            states: outputs,
            real: source.real.clone(),
            first: bridges.map(|(bridge, last)| bridge.forward(last)).collect(),
        }
    }

    fn write(
        &self,
        target: &Sequences,
        encoded: &Encoded,
        state: Vec<CellState>,
        pass: &mut Pass,
    ) -> Decoded {
        target.check("decode", self.config.length);
        let ([targets, _], [sources, ..]) = (target.ids.dims(), encoded.states.dims());
        assert_eq!(
            targets, sources,
            "decode: {targets} targets do not fit {sources} sources"
        );
        assert_eq!(
            state.len(),
            self.config.layers,
            "decode: the states of {} layers do not fit a decoder of {}",
            state.len(),
            self.config.layers
        );
        let Written {
            outputs,
            state,
            weights,
        } = self.decoder.forward(target, encoded, state, pass);
        let randomness = pass.randomness.as_deref_mut();
        Decoded {
            words: (self.words).forward(dropout(outputs.clone(), self.config.dropout, randomness)),
            hidden: outputs,
            state,
            weights,
        }
    }
}
