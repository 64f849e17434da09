//! A recurrent encoder-decoder with additive attention. Bahdanau et al. 2015.
//!
//! ```text
//! source ids → encoder → states ─────────────┐ additive attention, queried by the decoder's state
//!                  └ last states → bridge → decoder step → decoder step → …
//!                                             ↑ target id      └ hidden → logits
//! ```
//!
//! As in "Dive into Deep Learning" (Zhang et al. 2023), logits are a projection of the last layer's state, where the paper has
//! a maxout layer of state, token and context.

mod bridge;
mod cell;
mod config;
mod decoder;
mod encoder;
mod greedy;
mod steps;

use std::ops::Range;

use attentive_model::{ConfigError, ForwardContext, Initializer, Linear, Observer};
use attentive_tensor::{Randomness, dropout};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

pub use cell::{Cell, CellState};
pub use config::{CellKind, Directions, FirstState, RecurrentConfig};
pub use greedy::Greedy;
pub use steps::Sequences;

use bridge::Bridge;
use decoder::{Decoder, DecoderOutput};
use encoder::{Encoder, EncoderOutput};

/// A recurrent encoder-decoder.
#[derive(Module, Debug)]
pub struct Recurrent {
    encoder: Encoder,
    bridge: Vec<Bridge>,
    decoder: Decoder,
    /// The output projection.
    lm_head: Linear,
    #[module(skip)]
    config: RecurrentConfig,
}

/// Options of a forward pass.
#[derive(Default)]
pub struct RecurrentOptions<'a> {
    /// Sees and may replace attention weights. The attention has layer 0 and role cross, and is observed once per step, with
    /// one query: a replacement affects the steps after it. There is no residual stream to observe.
    pub observer: Option<&'a mut dyn Observer>,
    /// The generator of dropout masks; without it dropout is off.
    pub randomness: Option<&'a mut Randomness>,
}

impl<'a> RecurrentOptions<'a> {
    fn context(self) -> ForwardContext<'a> {
        ForwardContext {
            observer: self.observer,
            randomness: self.randomness,
            ..ForwardContext::default()
        }
    }
}

/// An encoded source.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The attention's values, `[batch, length, memory width]`; zeros at padding.
    pub states: Tensor<3>,
    /// The attention's keys, `[batch, length, attention width]`, projected once for all steps.
    pub keys: Tensor<3>,
    /// The range of positions of each batch row that are not padding.
    pub non_padding: Option<Vec<Range<usize>>>,
    /// The decoder's initial state, layer by layer.
    pub initial_state: Vec<CellState>,
}

/// The result of decoding.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// Logits of the next token, `[batch, length, vocabulary]`; undefined at padding.
    pub logits: Tensor<3>,
    /// The last hidden states, `[batch, length, hidden_width]`; zeros at padding.
    pub hidden: Tensor<3>,
    /// The state after the last step, layer by layer.
    pub state: Vec<CellState>,
    /// The attention weights, `[batch, 1, length, source length]`, if the observer requests them.
    pub weights: Option<Tensor<4>>,
}

impl Recurrent {
    /// Builds a model with fresh weights, sampled from `seed` when they are first used.
    pub fn new(config: &RecurrentConfig, seed: u64, device: &Device) -> Result<Self, ConfigError> {
        config.validate()?;
        let initializer = &mut Initializer::new(seed, device);
        let (width, std) = (config.hidden_width, config.init_std);
        Ok(Self {
            encoder: Encoder::new(config, initializer),
            bridge: (0..config.layers)
                .map(|_| Bridge::new(config, initializer))
                .collect(),
            decoder: Decoder::new(config, initializer),
            lm_head: Linear::new(width, config.target_vocabulary, true, std, initializer),
            config: config.clone(),
        })
    }

    /// The settings it was built from.
    pub fn config(&self) -> &RecurrentConfig {
        &self.config
    }

    /// The device of its weights.
    pub fn device(&self) -> Device {
        self.lm_head.weight.lazy_device()
    }

    /// Encodes the source.
    ///
    /// # Panics
    /// When it is empty or longer than the model's length, or its ranges do not match.
    pub fn encode(&self, source: &Sequences, options: RecurrentOptions) -> Encoded {
        self.run_encoder(source, &mut options.context())
    }

    /// Decodes known tokens from a state of [`Recurrent::encode`] or of an earlier call: a whole target, or the last token of a
    /// search.
    ///
    /// # Panics
    /// When there are no tokens or more than the model's length, or shapes do not match.
    pub fn decode(
        &self,
        target: &Sequences,
        encoded: &Encoded,
        state: Vec<CellState>,
        options: RecurrentOptions,
    ) -> Decoded {
        self.run_decoder(target, encoded, state, &mut options.context())
    }

    /// Logits of the token after each of `target`, with teacher forcing (Williams and Zipser 1989).
    ///
    /// # Panics
    /// As [`Recurrent::encode`] and [`Recurrent::decode`] do.
    pub fn forward(
        &self,
        source: &Sequences,
        target: &Sequences,
        options: RecurrentOptions,
    ) -> Decoded {
        let pass = &mut options.context();
        let encoded = self.run_encoder(source, pass);
        let state = encoded.initial_state.clone();
        self.run_decoder(target, &encoded, state, pass)
    }

    fn run_encoder(&self, source: &Sequences, pass: &mut ForwardContext) -> Encoded {
        source.check("encode", self.config.length);
        let EncoderOutput { outputs, last } = self.encoder.forward(source, pass);
        let bridges = self.bridge.iter().zip(last);
        Encoded {
            keys: self.decoder.attention.project_keys(outputs.clone()),
            states: outputs,
            non_padding: source.non_padding.clone(),
            initial_state: bridges.map(|(bridge, last)| bridge.forward(last)).collect(),
        }
    }

    fn run_decoder(
        &self,
        target: &Sequences,
        encoded: &Encoded,
        state: Vec<CellState>,
        pass: &mut ForwardContext,
    ) -> Decoded {
        target.check("decode", self.config.length);
        let ([targets, _], [sources, ..]) = (target.ids.dims(), encoded.states.dims());
        assert_eq!(
            targets, sources,
            "decode: {targets} targets do not match {sources} sources"
        );
        assert_eq!(
            state.len(),
            self.config.layers,
            "decode: the states of {} layers do not match a decoder of {}",
            state.len(),
            self.config.layers
        );
        let DecoderOutput {
            outputs,
            state,
            weights,
        } = self.decoder.forward(target, encoded, state, pass);
        let randomness = pass.randomness.as_deref_mut();
        Decoded {
            logits: (self.lm_head).forward(dropout(
                outputs.clone(),
                self.config.dropout,
                randomness,
            )),
            hidden: outputs,
            state,
            weights,
        }
    }
}
