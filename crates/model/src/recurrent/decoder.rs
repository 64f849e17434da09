//! The decoder: layers that look at the source before each step, with the state that the step before left.

use attentive_tensor::dropout;
use burn::module::Module;
use burn::tensor::Tensor;

use super::steps::by_step;
use super::{Cell, CellState, Encoded, RecurrentConfig, Sequences};
use crate::attention::Additive;
use crate::{AttentionSite, Call, Embedding, Initializer, Linear, Pass, Role};

/// Embedding, attention and layers.
#[derive(Module, Debug)]
pub(super) struct Decoder {
    tokens: Embedding,
    pub(super) attention: Additive,
    /// What the first layer reads of the context: the other part of its input map, apart because the tokens are all known
    /// before the first step, and a context only when its step comes.
    context: Linear,
    layers: Vec<Cell>,
    #[module(skip)]
    dropout: f64,
}

/// What the decoder gives.
pub(super) struct Written {
    /// What the last layer gave at each step, `[batch, length, hidden_width]`; zeros at padding.
    pub outputs: Tensor<3>,
    /// The state after the last step.
    pub state: Vec<CellState>,
    /// `[batch, 1, length, source length]`, if the observer asked for them.
    pub weights: Option<Tensor<4>>,
}

impl Decoder {
    pub fn new(config: &RecurrentConfig, initial: &mut Initializer) -> Self {
        let (hidden, deviation) = (config.hidden_width, config.initial_deviation);
        let shape = [config.target_vocabulary, config.width];
        let memory = config.memory_width();
        let widths = [hidden, memory];
        let gates = config.cell.parts() * hidden;
        Self {
            tokens: Embedding::new(shape, deviation, initial),
            attention: Additive::new(widths, config.attention_width, deviation, initial),
            // The cell's input map has the bias of both.
            context: Linear::new(memory, gates, false, deviation, initial),
            layers: (0..config.layers)
                .map(|layer| {
                    let input = if layer == 0 { config.width } else { hidden };
                    Cell::new(input, config, initial)
                })
                .collect(),
            dropout: config.dropout,
        }
    }

    pub fn forward(
        &self,
        target: &Sequences,
        encoded: &Encoded,
        mut state: Vec<CellState>,
        pass: &mut Pass,
    ) -> Written {
        let padding = target.padding();
        let vectors = self.tokens.forward(target.ids.clone());
        let vectors = dropout(vectors, self.dropout, pass.randomness.as_deref_mut());
        let (first, others) = self.layers.split_first().expect("there is a layer");
        let (mut outputs, mut weights) = (Vec::new(), Vec::new());
        for (step, read) in by_step(first.read(vectors)).into_iter().enumerate() {
            let last = state.last().expect("there is a layer").hidden.clone();
            let (context, seen) = self.look(last, encoded, pass);
            weights.extend(seen);
            let padded = padding.at(step);
            let mut advance = |cell: &Cell, read: Tensor<2>, place: usize| {
                let before = state[place].clone();
                let after = cell.step(read, before.clone()).unless(padded, before);
                state[place] = after.clone();
                after.hidden
            };
            let mut hidden = advance(first, read + self.context.forward(context), 0);
            for (place, cell) in others.iter().enumerate() {
                let input = dropout(hidden, self.dropout, pass.randomness.as_deref_mut());
                hidden = advance(cell, cell.read(input), place + 1);
            }
            outputs.push(padding.clear(step, hidden));
        }
        Written {
            outputs: Tensor::stack(outputs, 1),
            state,
            weights: (!weights.is_empty()).then(|| Tensor::cat(weights, 2)),
        }
    }

    /// What a state `[batch, hidden_width]` gathers from the source, `[batch, memory width]`, and with which weights.
    fn look(
        &self,
        state: Tensor<2>,
        encoded: &Encoded,
        pass: &mut Pass,
    ) -> (Tensor<2>, Option<Tensor<4>>) {
        let query = self.attention.map_queries(state);
        let [batch, width] = query.dims();
        let query = query.reshape([batch, 1, 1, width]);
        let mut call = Call {
            site: AttentionSite {
                layer: 0,
                role: Role::Cross,
            },
            real: encoded.real.clone(),
            dropout: 0.0,
            pass,
        };
        let scores = self
            .attention
            .of(query, encoded.keys.clone().unsqueeze_dim(1));
        let mask = call.mask(0);
        let attended = call.weigh_by(scores, &mask, encoded.states.clone().unsqueeze_dim(1));
        let [_, _, _, width] = attended.context.dims();
        (attended.context.reshape([batch, width]), attended.weights)
    }
}
