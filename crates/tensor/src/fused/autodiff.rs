//! Fused operations in burn's autodiff graph.
//!
//! Nodes of the graph have one output. So an operation with several differentiable outputs is a node with a placeholder for
//! its value and gradient, and each output is a child of that node: its backward step stores the output's gradient where the
//! operation, whose backward runs after all its children, finds it.
//!
//! ```text
//! inputs ─ operation ┬ output 0        backward: each output stores its gradient,
//!                    └ output 1                  then the operation reads both
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::operation::{FusedBackend, FusedOperation, Inputs};
use super::{recycle, tensor};

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

impl<C: CheckpointStrategy> FusedBackend for Autodiff<Flex, C> {
    fn run_fused<const IN: usize, const OUT: usize, O: FusedOperation<IN, OUT>>(
        inputs: Inputs<Self>,
        operation: O,
    ) -> Vec<Tracked<C>> {
        let inputs: [Tracked<C>; IN] = inputs.into_array();
        let is_tracked = inputs.iter().any(Tracked::<C>::is_tracked);
        let nodes = inputs.each_ref().map(Tracked::<C>::node);
        let inputs = inputs.map(Tracked::<C>::into_primitive);
        if !is_tracked {
            let outputs = operation.forward(inputs);
            return outputs.map(Tracked::<C>::new).into();
        }
        let (outputs, saved) = operation.forward_and_save(inputs);
        let operation = FusedBackward::<O, OUT>(operation);
        let mut outputs = outputs.into_iter();
        let mut recorded = Vec::with_capacity(OUT);
        if O::DIFFERENTIABLE == 1 {
            let state = (saved, None);
            let output = outputs.next().expect("an operation has an output");
            recorded.push(record::<C, _, IN>(operation, nodes, output, state));
        } else {
            let gradients = OutputGradients::default();
            let state = (saved, Some(gradients.clone()));
            let node = record::<C, _, IN>(operation, nodes, placeholder(), state);
            for (index, output) in outputs.by_ref().take(O::DIFFERENTIABLE).enumerate() {
                let (backward, state) = (OutputBackward(index), gradients.clone());
                recorded.push(record::<C, _, 1>(backward, [node.node()], output, state));
            }
        }
        recorded.extend(outputs.map(Tracked::<C>::new));
        recorded
    }
}

/// Records an operation and its saved state in the graph.
fn record<C: CheckpointStrategy, O: Backward<Flex, N>, const N: usize>(
    operation: O,
    inputs: [NodeGuard; N],
    output: FlexTensor,
    state: O::State,
) -> Tracked<C> {
    match operation.prepare::<C>(inputs).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

#[derive(Debug)]
struct FusedBackward<O, const OUT: usize>(O);

impl<const IN: usize, const OUT: usize, O: FusedOperation<IN, OUT>> Backward<Flex, IN>
    for FusedBackward<O, OUT>
{
    /// With several differentiable outputs, their gradients.
    type State = (O::Saved, Option<OutputGradients>);

    fn backward(self, ops: Ops<Self::State, IN>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let (saved, outputs) = ops.state;
        let dys = match outputs {
            Some(outputs) => outputs.take(),
            None => {
                let mut dys = [const { None }; OUT];
                dys[0] = Some(gradient);
                dys
            }
        };
        let needs_gradient = ops.parents.each_ref().map(Option::is_some);
        let dxs = self.0.backward(saved, dys, needs_gradient);
        for (parent, dx) in ops.parents.into_iter().zip(dxs) {
            match parent {
                Some(parent) => {
                    let dx = dx.expect("the gradient is needed");
                    gradients.register::<Flex>(parent.id, dx);
                }
                None => recycle(dx),
            }
        }
    }
}

/// The gradients of an operation's outputs, as they arrive.
#[derive(Clone, Debug, Default)]
struct OutputGradients(Arc<Mutex<Vec<Option<FlexTensor>>>>);

impl OutputGradients {
    fn store(&self, index: usize, gradient: FlexTensor) {
        let mut gradients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gradients.len() <= index {
            gradients.resize(index + 1, None);
        }
        gradients[index] = Some(gradient);
    }

    /// The gradient of each of `N` outputs; none for an output that the loss does not depend on.
    fn take<const N: usize>(&self) -> [Option<FlexTensor>; N] {
        let mut gradients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gradients.resize(N, None);
        std::array::from_fn(|index| gradients[index].take())
    }
}

/// The value and the gradient of the operation's own node.
fn placeholder() -> FlexTensor {
    tensor(vec![0.0], [1])
}

#[derive(Debug)]
struct OutputBackward(usize);

impl Backward<Flex, 1> for OutputBackward {
    type State = OutputGradients;

    fn backward(
        self,
        ops: Ops<OutputGradients, 1>,
        gradients: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        ops.state.store(self.0, gradient);
        if let [Some(parent)] = &ops.parents {
            gradients.register::<Flex>(parent.id, placeholder());
        }
    }
}
