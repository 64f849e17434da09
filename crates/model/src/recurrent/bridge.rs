//! From the encoder's last states to the decoder's first.

use burn::module::Module;
use burn::tensor::Tensor;

use super::encoder::LastStates;
use super::{CellKind, CellState, FirstState, RecurrentConfig};
use crate::{Initializer, Linear};

/// The maps of one layer's states, where they are mapped.
#[derive(Module, Debug)]
pub(super) struct Bridge {
    hidden: Option<Linear>,
    /// Of an LSTM's memory, which is not bounded as hidden states are, so that no tangent follows.
    memory: Option<Linear>,
    #[module(skip)]
    from: FirstState,
}

impl Bridge {
    pub fn new(config: &RecurrentConfig, initial: &mut Initializer) -> Self {
        let (width, deviation) = (config.hidden_width, config.initial_deviation);
        let input = match config.first_state {
            FirstState::Copied => None,
            FirstState::Backward => Some(width),
            FirstState::Joined => Some(2 * width),
        };
        let mut map = |input| Linear::new(input, width, true, deviation, initial);
        Self {
            hidden: input.map(&mut map),
            memory: input.filter(|_| config.cell == CellKind::Lstm).map(map),
            from: config.first_state,
        }
    }

    /// # Panics
    /// When a state is asked for that the encoder does not have, which the settings refuse.
    pub fn forward(&self, last: LastStates) -> CellState {
        let LastStates { forward, backward } = last;
        let back = || backward.expect("bridge: the encoder reads both ways");
        let CellState { hidden, memory } = match self.from {
            FirstState::Copied => return forward,
            FirstState::Backward => back(),
            FirstState::Joined => {
                let back = back();
                CellState {
                    hidden: joined(forward.hidden, back.hidden),
                    memory: (forward.memory.zip(back.memory)).map(|(a, b)| joined(a, b)),
                }
            }
        };
        let map = self
            .hidden
            .as_ref()
            .expect("bridge: mapped states have maps");
        CellState {
            hidden: map.forward(hidden).tanh(),
            memory: (self.memory.as_ref().zip(memory)).map(|(map, memory)| map.forward(memory)),
        }
    }
}

fn joined(forward: Tensor<2>, backward: Tensor<2>) -> Tensor<2> {
    Tensor::cat(vec![forward, backward], 1)
}
