//! Operations with several outputs.
//!
//! Nodes of burn's autodiff graph have one output. So the operation is a node with a placeholder for its value and gradient,
//! and each output is a child of that node: its backward step stores the output's gradient where the operation, whose
//! backward runs after all its children, finds it.
//!
//! ```text
//! inputs ─ operation ┬ output 0        backward: each output stores its gradient,
//!                    └ output 1                  then the operation reads both
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{record, tensor};

/// The gradients of an operation's outputs, as they arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct GradientSlots(Arc<Mutex<Vec<Option<FlexTensor>>>>);

impl GradientSlots {
    fn store(&self, index: usize, gradient: FlexTensor) {
        let mut gradients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gradients.len() <= index {
            gradients.resize(index + 1, None);
        }
        gradients[index] = Some(gradient);
    }

    /// The gradient of each of `N` outputs; none for an output that the loss does not depend on.
    pub fn take<const N: usize>(&self) -> [Option<FlexTensor>; N] {
        let mut gradients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gradients.resize(N, None);
        std::array::from_fn(|index| gradients[index].take())
    }
}

/// Records an operation with several outputs. Its saved state keeps the [`GradientSlots`] given to `state`.
pub(super) fn record_outputs<C, O, const IN: usize, const OUT: usize>(
    operation: O,
    inputs: [NodeGuard; IN],
    outputs: [FlexTensor; OUT],
    state: impl FnOnce(GradientSlots) -> O::State,
) -> [FloatTensor<Autodiff<Flex, C>>; OUT]
where
    C: CheckpointStrategy,
    O: Backward<Flex, IN>,
{
    let gradients = GradientSlots::default();
    let node = record::<C, O, IN>(operation, inputs, placeholder(), || {
        state(gradients.clone())
    });
    let mut index = 0;
    outputs.map(|output| {
        let child = record::<C, _, 1>(OutputBackward(index), [node.node()], output, || {
            gradients.clone()
        });
        index += 1;
        child
    })
}

/// The value and the gradient of the operation's own node.
fn placeholder() -> FlexTensor {
    tensor(vec![0.0], [1])
}

#[derive(Debug)]
struct OutputBackward(usize);

impl Backward<Flex, 1> for OutputBackward {
    type State = GradientSlots;

    fn backward(self, ops: Ops<GradientSlots, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        ops.state
            .store(self.0, gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            gradients.register::<Flex>(parent.id, placeholder());
        }
    }
}
