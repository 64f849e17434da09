//! One step of a recurrent layer, with the gates and biases of PyTorch: GRU (Cho et al. 2014) and LSTM (Hochreiter and
//! Schmidhuber 1997).
//!
//! ```text
//! GRU     i, s = input · x + b, recurrent · h + c      each in three parts: r, z, n
//!         r, z = σ(i_r + s_r), σ(i_z + s_z)            what is reset, what is kept
//!         h'   = (1 - z) · tanh(i_n + r · s_n) + z · h   (Cho et al. reset h before the product; this is one product)
//!
//! LSTM    a    = input · x + b + recurrent · h + c     in four parts: i, f, g, o
//!         m'   = σ(f) · m + σ(i) · tanh(g)
//!         h'   = σ(o) · tanh(m')
//! ```

use attentive_tensor::{Activation, activate};
use burn::module::Module;
use burn::tensor::{Bool, Tensor};

use super::{CellKind, RecurrentConfig};
use crate::{Initializer, Linear};

/// The weights of one layer, in one direction.
#[derive(Module, Debug)]
pub struct Cell {
    input: Linear,
    recurrent: Linear,
    #[module(skip)]
    kind: CellKind,
}

/// What a layer carries from step to step.
#[derive(Clone, Debug)]
pub struct CellState {
    /// What it shows to others, `[batch, hidden_width]`.
    pub hidden: Tensor<2>,
    /// What an LSTM keeps to itself, `[batch, hidden_width]`.
    pub memory: Option<Tensor<2>>,
}

impl Cell {
    /// A cell that reads vectors of width `input`.
    pub(super) fn new(input: usize, config: &RecurrentConfig, initial: &mut Initializer) -> Self {
        let (hidden, deviation) = (config.hidden_width, config.initial_deviation);
        let rows = config.cell.parts() * hidden;
        Self {
            input: Linear::new(input, rows, true, deviation, initial),
            recurrent: Linear::new(hidden, rows, true, deviation, initial),
            kind: config.cell,
        }
    }

    /// What the inputs add to each step: of a whole sequence in one product, since no state is needed for it.
    pub(super) fn read<const D: usize>(&self, inputs: Tensor<D>) -> Tensor<D> {
        self.input.forward(inputs)
    }

    /// The state before the first step: zeros.
    pub(super) fn start(&self, batch: usize) -> CellState {
        let recurrent = self.recurrent.weight.val();
        let [_, hidden] = recurrent.dims();
        let zeros = Tensor::zeros([batch, hidden], &recurrent.device());
        CellState {
            memory: (self.kind == CellKind::Lstm).then(|| zeros.clone()),
            hidden: zeros,
        }
    }

    /// The state after a step; `read` is what [`Cell::read`] gave for its input, `[batch, parts · hidden_width]`.
    ///
    /// # Panics
    /// When an LSTM's state has no memory.
    pub(super) fn step(&self, read: Tensor<2>, state: CellState) -> CellState {
        let recurrent = self.recurrent.forward(state.hidden.clone());
        match self.kind {
            CellKind::Gru => gru(read, recurrent, state.hidden),
            CellKind::Lstm => {
                let memory = state.memory.expect("step: an LSTM's state has a memory");
                lstm(read + recurrent, memory)
            }
        }
    }
}

fn gru(read: Tensor<2>, recurrent: Tensor<2>, hidden: Tensor<2>) -> CellState {
    let width = hidden.dims()[1];
    let both = |x: &Tensor<2>| x.clone().narrow(1, 0, 2 * width);
    let gates = activate(Activation::Sigmoid, both(&read) + both(&recurrent));
    let reset = gates.clone().narrow(1, 0, width);
    let kept = gates.narrow(1, width, width);
    let new = read.narrow(1, 2 * width, width);
    let new = (new + reset * recurrent.narrow(1, 2 * width, width)).tanh();
    CellState {
        hidden: new.clone() + kept * (hidden - new),
        memory: None,
    }
}

fn lstm(sum: Tensor<2>, memory: Tensor<2>) -> CellState {
    let width = memory.dims()[1];
    let part = |index: usize| sum.clone().narrow(1, index * width, width);
    let gate = |index: usize| activate(Activation::Sigmoid, part(index));
    let memory = gate(1) * memory + gate(0) * part(2).tanh();
    CellState {
        hidden: gate(3) * memory.clone().tanh(),
        memory: Some(memory),
    }
}

impl CellState {
    /// This state where a row's step is real, and the one before where it is padding, as the `[batch, 1]` of `padded` says.
    pub(super) fn unless(self, padded: Option<&Tensor<2, Bool>>, before: Self) -> Self {
        let Some(padded) = padded else {
            return self;
        };
        let choose = |new: Tensor<2>, old: Tensor<2>| {
            let padded = padded.clone().expand(new.dims());
            new.mask_where(padded, old)
        };
        Self {
            hidden: choose(self.hidden, before.hidden),
            memory: (self.memory.zip(before.memory)).map(|(new, old)| choose(new, old)),
        }
    }
}
