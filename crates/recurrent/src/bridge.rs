//! The decoder's initial state, from the encoder's last states.

use attentive_model::{Initializer, Linear};
use burn::module::Module;
use burn::tensor::Tensor;

use crate::encoder::LastStates;
use crate::{CellKind, CellState, FirstState, RecurrentConfig};

/// The projections of one layer's state; none where it is copied.
#[derive(Module, Debug)]
pub(crate) struct Bridge {
    hidden: Option<Linear>,
    /// The projection of an LSTM's cell state; no tanh, as the cell state is not bounded like the hidden state.
    memory: Option<Linear>,
    #[module(skip)]
    source: FirstState,
}

impl Bridge {
    pub fn new(config: &RecurrentConfig, initializer: &mut Initializer) -> Self {
        let (width, std) = (config.hidden_width, config.init_std);
        let input = match config.first_state {
            FirstState::Copied => None,
            FirstState::Backward => Some(width),
            FirstState::Joined => Some(2 * width),
        };
        let mut projection = |input| Linear::new(input, width, true, std, initializer);
        Self {
            hidden: input.map(&mut projection),
            memory: input
                .filter(|_| config.cell == CellKind::Lstm)
                .map(projection),
            source: config.first_state,
        }
    }

    /// # Panics
    /// When the encoder has no backward state, which validation refuses.
    pub fn forward(&self, last: LastStates) -> CellState {
        let LastStates { forward, backward } = last;
        let backward = || backward.expect("bridge: the encoder is bidirectional");
        let CellState { hidden, cell } = match self.source {
            FirstState::Copied => return forward,
            FirstState::Backward => backward(),
            FirstState::Joined => {
                let backward = backward();
                CellState {
                    hidden: concatenate(forward.hidden, backward.hidden),
                    cell: (forward.cell.zip(backward.cell))
                        .map(|(forward, backward)| concatenate(forward, backward)),
                }
            }
        };
        let map = self
            .hidden
            .as_ref()
            .expect("bridge: the state is projected");
        CellState {
            hidden: map.forward(hidden).tanh(),
            cell: (self.memory.as_ref().zip(cell)).map(|(map, cell)| map.forward(cell)),
        }
    }
}

fn concatenate(forward: Tensor<2>, backward: Tensor<2>) -> Tensor<2> {
    Tensor::cat(vec![forward, backward], 1)
}
