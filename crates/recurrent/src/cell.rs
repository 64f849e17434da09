//! One step of a recurrent layer, with PyTorch's order of gates and its two biases: GRU (Cho et al. 2014) and LSTM (Hochreiter and
//! Schmidhuber 1997).
//!
//! ```text
//! GRU     i, s = input · x + b_i, recurrent · h + b_h    each in three chunks: r, z, n
//!         r, z = σ(i_r + s_r), σ(i_z + s_z)              reset and update gates
//!         h'   = (1 - z) · tanh(i_n + r · s_n) + z · h   (Cho et al. reset h before the product; this is one product)
//!
//! LSTM    a    = input · x + b_i + recurrent · h + b_h   in four chunks: i, f, g, o
//!         c'   = σ(f) · c + σ(i) · tanh(g)
//!         h'   = σ(o) · tanh(c')
//! ```

use attentive_model::{Initializer, Linear};
use attentive_tensor::{Activation, activate};
use burn::module::Module;
use burn::tensor::{Bool, Tensor};

use crate::{CellKind, RecurrentConfig};

/// The weights of one layer, in one direction.
#[derive(Module, Debug)]
pub struct Cell {
    input: Linear,
    recurrent: Linear,
    #[module(skip)]
    kind: CellKind,
}

/// The state of a layer.
#[derive(Clone, Debug)]
pub struct CellState {
    /// The hidden state, `[batch, hidden_width]`.
    pub hidden: Tensor<2>,
    /// An LSTM's cell state, `[batch, hidden_width]`.
    pub cell: Option<Tensor<2>>,
}

impl Cell {
    /// A cell with inputs of width `input`.
    pub(crate) fn new(
        input: usize,
        config: &RecurrentConfig,
        initializer: &mut Initializer,
    ) -> Self {
        let (hidden, std) = (config.hidden_width, config.init_std);
        let rows = config.cell.gates() * hidden;
        Self {
            input: Linear::new(input, rows, true, std, initializer),
            recurrent: Linear::new(hidden, rows, true, std, initializer),
            kind: config.cell,
        }
    }

    /// The input projection, which needs no state: of a whole sequence in one product.
    pub(crate) fn project_inputs<const D: usize>(&self, inputs: Tensor<D>) -> Tensor<D> {
        self.input.forward(inputs)
    }

    /// The initial state: zeros.
    pub(crate) fn initial_state(&self, batch: usize) -> CellState {
        let recurrent = self.recurrent.weight.val();
        let [_, hidden] = recurrent.dims();
        let zeros = Tensor::zeros([batch, hidden], &recurrent.device());
        CellState {
            cell: (self.kind == CellKind::Lstm).then(|| zeros.clone()),
            hidden: zeros,
        }
    }

    /// The state after a step; `projected` is the result of [`Cell::project_inputs`], `[batch, chunks · hidden_width]`.
    ///
    /// # Panics
    /// When an LSTM's state has no cell state.
    pub(crate) fn step(&self, projected: Tensor<2>, state: CellState) -> CellState {
        let recurrent = self.recurrent.forward(state.hidden.clone());
        match self.kind {
            CellKind::Gru => gru(projected, recurrent, state.hidden),
            CellKind::Lstm => {
                let cell = state.cell.expect("step: an LSTM has a cell state");
                lstm(projected + recurrent, cell)
            }
        }
    }
}

fn gru(projected: Tensor<2>, recurrent: Tensor<2>, hidden: Tensor<2>) -> CellState {
    let width = hidden.dims()[1];
    let both = |x: &Tensor<2>| x.clone().narrow(1, 0, 2 * width);
    let gates = activate(Activation::Sigmoid, both(&projected) + both(&recurrent));
    let reset = gates.clone().narrow(1, 0, width);
    let update = gates.narrow(1, width, width);
    let new = projected.narrow(1, 2 * width, width);
    let new = (new + reset * recurrent.narrow(1, 2 * width, width)).tanh();
    CellState {
        hidden: new.clone() + update * (hidden - new),
        cell: None,
    }
}

fn lstm(sum: Tensor<2>, cell: Tensor<2>) -> CellState {
    let width = cell.dims()[1];
    let chunk = |index: usize| sum.clone().narrow(1, index * width, width);
    let gate = |index: usize| activate(Activation::Sigmoid, chunk(index));
    let cell = gate(1) * cell + gate(0) * chunk(2).tanh();
    CellState {
        hidden: gate(3) * cell.clone().tanh(),
        cell: Some(cell),
    }
}

impl CellState {
    /// This state, or the previous one in rows whose step is padding; `padding` is `[batch, 1]`.
    pub(crate) fn keep_at_padding(self, padding: Option<&Tensor<2, Bool>>, previous: Self) -> Self {
        let Some(padding) = padding else {
            return self;
        };
        let choose = |new: Tensor<2>, old: Tensor<2>| {
            let padding = padding.clone().expand(new.dims());
            new.mask_where(padding, old)
        };
        Self {
            hidden: choose(self.hidden, previous.hidden),
            cell: (self.cell.zip(previous.cell)).map(|(new, old)| choose(new, old)),
        }
    }
}
