//! The encoder: layers that read the source one way, or both ways.

use attentive_tensor::dropout;
use burn::module::Module;
use burn::tensor::Tensor;

use super::steps::{Padding, by_step};
use super::{Cell, CellState, Directions, RecurrentConfig, Sequences};
use crate::{Embedding, Initializer, Pass};

/// Embedding and layers.
#[derive(Module, Debug)]
pub(super) struct Encoder {
    tokens: Embedding,
    layers: Vec<Layer>,
    #[module(skip)]
    dropout: f64,
}

/// The cells of one layer.
#[derive(Module, Debug)]
struct Layer {
    forward: Cell,
    backward: Option<Cell>,
}

/// What the encoder gives.
pub(super) struct Read {
    /// What the last layer gave at each step, `[batch, length, memory width]`; zeros at padding.
    pub outputs: Tensor<3>,
    /// The last states of each layer.
    pub last: Vec<LastStates>,
}

/// The last states of a layer: forward after the last token, backward after the first.
pub(super) struct LastStates {
    pub forward: CellState,
    pub backward: Option<CellState>,
}

impl Encoder {
    pub fn new(config: &RecurrentConfig, initial: &mut Initializer) -> Self {
        let shape = [config.source_vocabulary, config.width];
        let tokens = Embedding::new(shape, config.initial_deviation, initial);
        let layer = |number: usize| {
            let input = match number {
                0 => config.width,
                _ => config.memory_width(),
            };
            let both = config.directions == Directions::Both;
            Layer {
                forward: Cell::new(input, config, initial),
                backward: both.then(|| Cell::new(input, config, initial)),
            }
        };
        Self {
            tokens,
            layers: (0..config.layers).map(layer).collect(),
            dropout: config.dropout,
        }
    }

    pub fn forward(&self, source: &Sequences, pass: &mut Pass) -> Read {
        let padding = source.padding();
        let mut outputs = self.tokens.forward(source.ids.clone());
        let mut last = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            outputs = dropout(outputs, self.dropout, pass.randomness.as_deref_mut());
            let states;
            (outputs, states) = layer.forward(outputs, &padding);
            last.push(states);
        }
        Read { outputs, last }
    }
}

impl Layer {
    fn forward(&self, inputs: Tensor<3>, padding: &Padding) -> (Tensor<3>, LastStates) {
        let steps = 0..inputs.dims()[1];
        let (outputs, forward) = run(&self.forward, inputs.clone(), padding, steps.clone());
        let mut outputs = vec![Tensor::stack(outputs, 1)];
        let backward = self.backward.as_ref().map(|cell| {
            let (mut back, last) = run(cell, inputs, padding, steps.rev());
            back.reverse();
            outputs.push(Tensor::stack(back, 1));
            last
        });
        (Tensor::cat(outputs, 2), LastStates { forward, backward })
    }
}

/// Goes through the steps in their order: what each gives, in that order, and the last state.
fn run(
    cell: &Cell,
    inputs: Tensor<3>,
    padding: &Padding,
    steps: impl Iterator<Item = usize>,
) -> (Vec<Tensor<2>>, CellState) {
    let mut state = cell.start(inputs.dims()[0]);
    let read = by_step(cell.read(inputs));
    let outputs = steps.map(|step| {
        let before = state.clone();
        state = cell.step(read[step].clone(), before.clone());
        state = state.clone().unless(padding.at(step), before);
        padding.clear(step, state.hidden.clone())
    });
    let outputs = outputs.collect();
    (outputs, state)
}
