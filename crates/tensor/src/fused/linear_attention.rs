//! Linear attention of features with any strides.

use std::ops::Range;

use attentive_kernels::linear_attention::{self as kernels, ForwardOutputs, Options, Order, State};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::heads::{contiguous_rows, heads, length_first, operand_sizes, shape};
use super::operation::{FusedOperation, optional, run};
use super::{buffer, contiguous, data, is_present, recycle, release, tensor};
use crate::{LinearAttentionOutput, LinearState};

/// The settings of a linear attention.
#[derive(Clone, Debug)]
pub(crate) struct LinearOptions {
    pub causal: bool,
    pub keys: Option<Vec<Range<usize>>>,
}

impl LinearOptions {
    /// The options of the kernel, given the key–value sums and the key sums of the initial state, if there is one.
    fn for_kernel<'a>(&'a self, [kv_sums, key_sums]: [&'a FlexTensor; 2]) -> Options<'a> {
        Options {
            order: match self.causal {
                true => Order::Causal,
                false => Order::Bidirectional,
            },
            keys: self.keys.as_deref(),
            initial_state: is_present(key_sums).then(|| State {
                kv_sums: data(kv_sums),
                key_sums: data(key_sums),
            }),
        }
    }
}

/// Linear attention of features, and the final state. No gradient flows through a state.
pub(crate) fn linear_attention(
    [query, key, value]: [Tensor<4>; 3],
    state: Option<LinearState>,
    options: LinearOptions,
) -> LinearAttentionOutput {
    let device = query.device();
    let (kv_sums, key_sums) = match state {
        Some(state) => (Some(state.kv_sums.detach()), Some(state.key_sums.detach())),
        None => (None, None),
    };
    let inputs = [
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        optional(kv_sums, &device),
        optional(key_sums, &device),
    ];
    let [context, kv_sums, key_sums] = run(LinearAttention(options), inputs);
    LinearAttentionOutput {
        context: Tensor::from_dispatch(context),
        state: LinearState {
            kv_sums: Tensor::from_dispatch(kv_sums),
            key_sums: Tensor::from_dispatch(key_sums),
        },
    }
}

/// Inputs: query, key, value, and the two sums of the initial state. Outputs: the context, and the two sums of the final state.
#[derive(Clone, Debug)]
struct LinearAttention(LinearOptions);

#[derive(Clone, Debug)]
struct Saved {
    operands: [FlexTensor; 3],
    initial_state: [FlexTensor; 2],
    context: FlexTensor,
    denominators: Vec<f32>,
}

impl FusedOperation<5, 3> for LinearAttention {
    type Saved = Saved;

    const DIFFERENTIABLE: usize = 1;

    fn forward(&self, inputs: [FlexTensor; 5]) -> [FlexTensor; 3] {
        let (outputs, saved) = self.forward_and_save(inputs);
        recycle(saved.operands);
        release(saved.denominators);
        outputs
    }

    fn forward_and_save(
        &self,
        [query, key, value, kv_sums, key_sums]: [FlexTensor; 5],
    ) -> ([FlexTensor; 3], Saved) {
        let operands = [&query, &key, &value].map(contiguous_rows);
        let initial_state = [&kv_sums, &key_sums].map(contiguous);
        let shape = shape(operands.each_ref());
        let state = [shape.batch, shape.key_value_heads, shape.head_width];
        let count = state.iter().product::<usize>();
        let mut denominators = buffer(shape.batch * shape.heads * shape.queries);
        let mut context = buffer(denominators.len() * shape.value_width);
        let (mut kv_sums, mut key_sums) = (buffer(count * shape.value_width), buffer(count));
        kernels::forward(
            &shape,
            operands.each_ref().map(heads),
            &self.0.for_kernel(initial_state.each_ref()),
            ForwardOutputs {
                context: &mut context,
                denominators: &mut denominators,
                kv_sums: &mut kv_sums,
                key_sums: &mut key_sums,
            },
        );
        let [batch, key_value_heads, features] = state;
        let context_sizes = [batch, shape.heads, shape.queries, shape.value_width];
        let context = length_first(context, context_sizes);
        let kv_sizes = [batch, key_value_heads, features, shape.value_width];
        let outputs = [
            context.clone(),
            tensor(kv_sums, kv_sizes),
            tensor(key_sums, state),
        ];
        let saved = Saved {
            operands,
            initial_state,
            context,
            denominators,
        };
        (outputs, saved)
    }

    fn backward(
        &self,
        saved: Saved,
        [dcontext, ..]: [Option<FlexTensor>; 3],
        _: [bool; 5],
    ) -> [Option<FlexTensor>; 5] {
        let dcontext = dcontext.expect("the context is the one output with a gradient");
        let dcontext = contiguous_rows(&dcontext);
        let shape = shape(saved.operands.each_ref());
        let sizes = operand_sizes(&shape);
        let [mut query, mut key, mut value] = sizes.map(|it| buffer(it.iter().product()));
        kernels::backward(
            &shape,
            saved.operands.each_ref().map(heads),
            [heads(&saved.context), heads(&dcontext)],
            &saved.denominators,
            &self.0.for_kernel(saved.initial_state.each_ref()),
            kernels::Gradients {
                query: &mut query,
                key: &mut key,
                value: &mut value,
            },
        );
        recycle(saved.operands);
        recycle([saved.context, dcontext]);
        release(saved.denominators);
        let [query_sizes, key_sizes, value_sizes] = sizes;
        [
            Some(length_first(query, query_sizes)),
            Some(length_first(key, key_sizes)),
            Some(length_first(value, value_sizes)),
            None,
            None,
        ]
    }
}
