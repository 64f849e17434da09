//! The encoder: unidirectional or bidirectional recurrent layers.

use attentive_model::embeddings::Embedding;
use attentive_model::{ForwardContext, Initializer};
use attentive_tensor::dropout;
use burn::module::Module;
use burn::tensor::Tensor;

use crate::steps::{Padding, by_step};
use crate::{Cell, CellState, Directions, RecurrentConfig, Sequences};

/// Embedding and recurrent layers.
#[derive(Module, Debug)]
pub(crate) struct Encoder {
    tokens: Embedding,
    layers: Vec<EncoderLayer>,
    #[module(skip)]
    dropout: f64,
}

/// The cells of one layer.
#[derive(Module, Debug)]
struct EncoderLayer {
    forward: Cell,
    backward: Option<Cell>,
}

/// The output of the encoder.
pub(crate) struct EncoderOutput {
    /// The outputs of the last layer, `[batch, length, memory width]`; zeros at padding.
    pub outputs: Tensor<3>,
    /// The last states of each layer.
    pub last: Vec<LastStates>,
}

/// The last states of a layer: forward after the last token, backward after the first.
pub(crate) struct LastStates {
    pub forward: CellState,
    pub backward: Option<CellState>,
}

impl Encoder {
    pub fn new(config: &RecurrentConfig, initializer: &mut Initializer) -> Self {
        let shape = [config.source_vocabulary, config.width];
        let tokens = Embedding::new(shape, config.init_std, initializer);
        let layer = |number: usize| {
            let input = match number {
                0 => config.width,
                _ => config.memory_width(),
            };
            let bidirectional = config.directions == Directions::Both;
            EncoderLayer {
                forward: Cell::new(input, config, initializer),
                backward: bidirectional.then(|| Cell::new(input, config, initializer)),
            }
        };
        Self {
            tokens,
            layers: (0..config.layers).map(layer).collect(),
            dropout: config.dropout,
        }
    }

    pub fn forward(&self, source: &Sequences, pass: &mut ForwardContext) -> EncoderOutput {
        let padding = source.padding();
        let mut outputs = self.tokens.forward(source.ids.clone());
        let mut last = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            outputs = dropout(outputs, self.dropout, pass.randomness.as_deref_mut());
            let states;
            (outputs, states) = layer.forward(outputs, &padding);
            last.push(states);
        }
        EncoderOutput { outputs, last }
    }
}

impl EncoderLayer {
    fn forward(&self, inputs: Tensor<3>, padding: &Padding) -> (Tensor<3>, LastStates) {
        let steps = 0..inputs.dims()[1];
        let (outputs, forward) = run(&self.forward, inputs.clone(), padding, steps.clone());
        let mut outputs = vec![Tensor::stack(outputs, 1)];
        let backward = self.backward.as_ref().map(|cell| {
            let (mut backward, last) = run(cell, inputs, padding, steps.rev());
            backward.reverse();
            outputs.push(Tensor::stack(backward, 1));
            last
        });
        (Tensor::cat(outputs, 2), LastStates { forward, backward })
    }
}

/// Runs a cell over `steps`: the outputs in that order, and the last state.
fn run(
    cell: &Cell,
    inputs: Tensor<3>,
    padding: &Padding,
    steps: impl Iterator<Item = usize>,
) -> (Vec<Tensor<2>>, CellState) {
    let mut state = cell.initial_state(inputs.dims()[0]);
    let projected = by_step(cell.project_inputs(inputs));
    let outputs = steps.map(|step| {
        let previous = state.clone();
        state = cell.step(projected[step].clone(), previous.clone());
        state = state.clone().keep_at_padding(padding.at(step), previous);
        padding.clear(step, state.hidden.clone())
    });
    let outputs = outputs.collect();
    (outputs, state)
}
