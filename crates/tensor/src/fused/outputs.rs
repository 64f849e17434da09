//! Operations with several outputs.
//!
//! burn's graph knows operations of one output. So the operation is a node whose own value and gradient say nothing, and
//! each output is a child of that node: its backward step leaves the output's gradient in a slot that the operation reads
//! when its turn comes, after all its children.
//!
//! ```text
//! inputs ─ operation ┬ output 0        backward: output 0 fills slot 0, output 1 fills slot 1,
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

/// The gradients of an operation's outputs, as they come in.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Vec<Option<FlexTensor>>>>);

impl Slots {
    fn fill(&self, index: usize, gradient: FlexTensor) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() <= index {
            slots.resize(index + 1, None);
        }
        slots[index] = Some(gradient);
    }

    /// The gradient of each of `N` outputs; none for an output that the loss does not depend on.
    pub fn take<const N: usize>(&self) -> [Option<FlexTensor>; N] {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.resize(N, None);
        std::array::from_fn(|index| slots[index].take())
    }
}

/// Records an operation of several outputs; its state holds the slots that are handed to `state`.
pub(super) fn record_several<C, O, const IN: usize, const OUT: usize>(
    operation: O,
    inputs: [NodeGuard; IN],
    outputs: [FlexTensor; OUT],
    state: impl FnOnce(Slots) -> O::State,
) -> [FloatTensor<Autodiff<Flex, C>>; OUT]
where
    C: CheckpointStrategy,
    O: Backward<Flex, IN>,
{
    let slots = Slots::default();
    let node = record::<C, O, IN>(operation, inputs, nothing(), || state(slots.clone()));
    let mut index = 0;
    outputs.map(|output| {
        let child = record::<C, _, 1>(Output(index), [node.node()], output, || slots.clone());
        index += 1;
        child
    })
}

/// What stands for the value and the gradient of the operation's own node.
fn nothing() -> FlexTensor {
    tensor(vec![0.0], [1])
}

#[derive(Debug)]
struct Output(usize);

impl Backward<Flex, 1> for Output {
    type State = Slots;

    fn backward(self, ops: Ops<Slots, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        ops.state.fill(self.0, gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            gradients.register::<Flex>(parent.id, nothing());
        }
    }
}
