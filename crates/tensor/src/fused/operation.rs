//! What a fused operation is, and how one runs: without autodiff here, with autodiff in [`super::autodiff`].

use std::fmt::Debug;

use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType, backend_extension,
};
use burn::tensor::{Device, Tensor};

/// An operation with `IN` inputs and `OUT` outputs, with a hand-written backward pass. Its fields are its settings.
///
/// An optional input that is not given is empty: see [`optional`].
pub(crate) trait FusedOperation<const IN: usize, const OUT: usize>:
    Clone + Debug + Send + 'static
{
    /// What the backward pass needs of the forward pass.
    type Saved: Clone + Debug + Send + 'static;

    /// The number of differentiable outputs, which come first.
    const DIFFERENTIABLE: usize = OUT;

    /// The outputs. Inputs are recycled.
    fn forward(&self, inputs: [FlexTensor; IN]) -> [FlexTensor; OUT];

    /// The outputs, and what the backward pass needs.
    fn forward_and_save(&self, inputs: [FlexTensor; IN]) -> ([FlexTensor; OUT], Self::Saved);

    /// The gradient of each input that needs one, from those of the outputs; an output that the loss does not depend on
    /// has none. What was saved is recycled.
    fn backward(
        &self,
        saved: Self::Saved,
        dys: [Option<FlexTensor>; OUT],
        needs_gradient: [bool; IN],
    ) -> [Option<FlexTensor>; IN];
}

/// Backends that run fused operations.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedBackend: Backend {
    /// Runs one operation.
    fn run_fused<const IN: usize, const OUT: usize, O: FusedOperation<IN, OUT>>(
        #[extension_type] inputs: Inputs<Self>,
        operation: O,
    ) -> Vec<FloatTensor<Self>>;
}

impl FusedBackend for Flex {
    fn run_fused<const IN: usize, const OUT: usize, O: FusedOperation<IN, OUT>>(
        inputs: Inputs<Self>,
        operation: O,
    ) -> Vec<FlexTensor> {
        operation.forward(inputs.into_array()).into()
    }
}

/// Runs an operation on the backend of its inputs: `Flex` above, or `Autodiff<Flex>` in [`super::autodiff`], which records it for
/// the backward pass. `backend_extension` generates the dispatch, `Dispatch::run_fused`.
pub(super) fn run<const IN: usize, const OUT: usize, O: FusedOperation<IN, OUT>>(
    operation: O,
    inputs: [FloatTensor<Dispatch>; IN],
) -> [FloatTensor<Dispatch>; OUT] {
    let outputs = Dispatch::run_fused::<IN, OUT, O>(Inputs(inputs.into()), operation);
    (outputs.try_into()).unwrap_or_else(|_| unreachable!("an operation has {OUT} outputs"))
}

/// An optional input: an empty tensor stands for none.
pub(super) fn optional<const D: usize>(
    x: Option<Tensor<D>>,
    device: &Device,
) -> FloatTensor<Dispatch> {
    x.unwrap_or_else(|| Tensor::empty([0; D], device))
        .into_dispatch()
}

/// The inputs of an operation.
pub(crate) struct Inputs<B: Backend>(Vec<FloatTensor<B>>);

impl<B: Backend> Inputs<B> {
    pub(super) fn into_array<const IN: usize>(self) -> [FloatTensor<B>; IN] {
        (self.0.try_into()).unwrap_or_else(|_| unreachable!("an operation has {IN} inputs"))
    }
}

impl<B: Backend> ExtensionType<B> for Inputs<B> {
    type Target = Inputs<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Inputs<Dispatch>
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |x| DispatchTensor {
            kind: map_kind(BackendTensor::Float(x)),
            autodiff,
        };
        Inputs(self.0.into_iter().map(wrap).collect())
    }

    fn map_from_dispatch<F>(inputs: Inputs<Dispatch>, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        let unwrap = |x| unwrap_kind(x).float();
        Self(inputs.0.into_iter().map(unwrap).collect())
    }

    fn routing_tensor(inputs: &Inputs<Dispatch>) -> Option<&DispatchTensor> {
        inputs.0.first()
    }

    fn routing_float_tensor(inputs: &Inputs<Dispatch>) -> Option<&DispatchTensor> {
        inputs.0.first()
    }

    fn autodiff_context(inputs: &Inputs<Dispatch>) -> DispatchAutodiffContext {
        let contexts = inputs.0.iter().map(|x| x.autodiff);
        contexts.fold(
            DispatchAutodiffContext::Disabled,
            DispatchAutodiffContext::merge,
        )
    }
}
